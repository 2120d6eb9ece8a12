-- Note on a running record that an answer with this head begins to leave.
-- Arguments: id, token, status, headers, hold, now
-- Columns: 1; no row when fenced
--
-- Atomic and fenced as one conditional statement on one row.
UPDATE retrysafe_records SET
    checkpointed = 1,
    status = :status,
    headers = :headers,
    held_until = max(held_until, :now + :hold),
    updated_at = :now
WHERE id = :id AND token = :token AND state = 'in_progress'
RETURNING 1
