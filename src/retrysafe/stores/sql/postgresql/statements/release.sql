-- Forget a running record.
-- Arguments: id, token, announced, patience
-- Columns: 1, then nothing of interest; no row when fenced
--
-- Atomic and fenced as one conditional statement on one row.
DELETE FROM retrysafe_records AS record
WHERE record.id = CAST(:id AS bytea)
    AND record.token = CAST(:token AS bytea)
    AND record.state = 'in_progress'
    AND {lock_timeout}
    AND {durable_commit}
RETURNING 1, {notify_waiters}
