-- Keep the outcome of a running record whose expiry has passed, and let it be seen for its retention.
-- Arguments: id, token, state, status, headers, body, omitted, retention, now
-- Columns: 1; no row when fenced
--
-- Atomic and fenced as one conditional statement on one row.
UPDATE retrysafe_records SET
    state = :state,
    completed_at = :now,
    updated_at = :now,
    expires_at = :now + :retention,
    status = :status,
    headers = :headers,
    body = :body,
    omitted = :omitted
WHERE id = :id AND token = :token AND state = 'in_progress' AND expires_at <= :now
RETURNING 1
