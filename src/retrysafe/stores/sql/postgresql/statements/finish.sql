-- Keep the outcome of a running record that is not past its expiry.
-- Arguments: id, token, state, status, headers, body, omitted, announced, patience
-- Columns: 1, then nothing of interest; no row when fenced, or late
--
-- Atomic and fenced as one conditional statement on one row.
UPDATE retrysafe_records AS record SET
    state = CAST(:state AS text),
    completed_at = {now},
    updated_at = {now},
    status = CAST(:status AS integer),
    headers = CAST(:headers AS text),
    body = CAST(:body AS bytea),
    omitted = CAST(:omitted AS smallint)
WHERE record.id = CAST(:id AS bytea)
    AND record.token = CAST(:token AS bytea)
    AND record.state = 'in_progress'
    AND record.expires_at > {now}
    AND {lock_timeout}
    AND {durable_commit}
RETURNING 1, {notify_waiters}
