-- Note on a running record that an answer with this head begins to leave.
-- Arguments: id, token, status, headers, hold, patience
-- Columns: 1; no row when fenced
--
-- Atomic and fenced as one conditional statement on one row.
UPDATE retrysafe_records AS record SET
    checkpointed = 1,
    status = CAST(:status AS integer),
    headers = CAST(:headers AS text),
    held_until = greatest(record.held_until, {now} + CAST(:hold AS float8) * interval '1 second'),
    updated_at = {now}
WHERE record.id = CAST(:id AS bytea)
    AND record.token = CAST(:token AS bytea)
    AND record.state = 'in_progress'
    AND {lock_timeout}
    AND {durable_commit}
RETURNING 1
