-- Replace the attempt that holds the token `previous`, if it failed, or was abandoned before anything left.
-- Arguments: id, previous, state, token, fingerprint, mode, lease, hold, patience
-- Columns: attempt, now one more; no row when there is nothing to take over
--
-- Atomic as one conditional statement on one row: of two successors one finds the token gone, and an owner
-- that failed in the last moment is not mistaken for one that was abandoned.  Creation,
-- expiry and request id stay those of the first attempt.  An expired record is absent, and left to `reserve`.
UPDATE retrysafe_records AS record SET
    token = CAST(:token AS bytea),
    fingerprint = CAST(:fingerprint AS bytea),
    state = 'in_progress',
    mode = CAST(:mode AS text),
    attempt = record.attempt + 1,
    lease_until = {now} + CAST(:lease AS float8) * interval '1 second',
    checkpointed = 0,
    updated_at = {now},
    completed_at = NULL,
    held_until = {now} + CAST(:hold AS float8) * interval '1 second',
    status = NULL,
    headers = NULL,
    body = NULL,
    omitted = 0
WHERE record.id = CAST(:id AS bytea)
    AND record.token = CAST(:previous AS bytea)
    AND record.state = CAST(:state AS text)
    AND record.version = 1
    AND (
        record.state = 'failed'
        OR (
            record.state = 'in_progress'
            AND record.checkpointed = 0
            AND coalesce(record.lease_until, record.expires_at) <= {now}
        )
    )
    AND ({expired}) IS NOT TRUE
    AND {lock_timeout}
    AND {durable_commit}
RETURNING record.attempt
