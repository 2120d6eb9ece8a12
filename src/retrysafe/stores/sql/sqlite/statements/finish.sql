-- Keep the outcome of a running record that is not past its expiry.
-- Arguments: id, token, state, status, headers, body, omitted, now
-- Columns: 1; no row when fenced, or late
--
-- Atomic and fenced as one conditional statement on one row.  It does not name expires_at, because naming an
-- indexed column moves its index entry, changed or not.
UPDATE retrysafe_records SET
    state = :state,
    completed_at = :now,
    updated_at = :now,
    status = :status,
    headers = :headers,
    body = :body,
    omitted = :omitted
WHERE id = :id AND token = :token AND state = 'in_progress' AND expires_at > :now
RETURNING 1
