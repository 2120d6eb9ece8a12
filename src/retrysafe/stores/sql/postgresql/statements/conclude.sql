-- Keep the outcome in a transaction of the caller's own, in time or late.
-- Arguments: id, token, state, status, headers, body, omitted, retention, lease, announced
-- Columns: 1, then nothing of interest; no row when fenced
--
-- Atomic with whatever else that transaction has written, and fenced: the row stays locked until its end.
-- Therefore its end must come.  For the rest of the transaction, which is the commit and what its triggers do,
-- no lock is waited for longer than the lease, and a worker that is frozen in it loses its session after
-- that time, so that the key does not stay locked.  What the caller had set shorter stays shorter.
--
-- Only a late record has its expiry changed; to name an indexed column with its old value is no change here.
UPDATE retrysafe_records AS record SET
    state = CAST(:state AS text),
    completed_at = {now},
    updated_at = {now},
    expires_at = CASE
        WHEN record.expires_at <= {now} THEN {now} + CAST(:retention AS float8) * interval '1 second'
        ELSE record.expires_at
    END,
    status = CAST(:status AS integer),
    headers = CAST(:headers AS text),
    body = CAST(:body AS bytea),
    omitted = CAST(:omitted AS smallint)
WHERE record.id = CAST(:id AS bytea)
    AND record.token = CAST(:token AS bytea)
    AND record.state = 'in_progress'
    AND set_config(
        'lock_timeout',
        CAST(least(
            nullif(CAST(1000 * date_part('epoch', CAST(current_setting('lock_timeout') AS interval)) AS bigint), 0),
            CAST(greatest(CAST(:lease AS float8) * 1000, 1) AS bigint),
            2147483647
        ) AS text),
        true
    ) IS NOT NULL
    AND set_config(
        'idle_in_transaction_session_timeout',
        CAST(least(
            nullif(CAST(1000 * date_part(
                'epoch', CAST(current_setting('idle_in_transaction_session_timeout') AS interval)
            ) AS bigint), 0),
            CAST(greatest(CAST(:lease AS float8) * 1000, 1) AS bigint),
            2147483647
        ) AS text),
        true
    ) IS NOT NULL
    AND {durable_commit}
RETURNING 1, {notify_waiters}
