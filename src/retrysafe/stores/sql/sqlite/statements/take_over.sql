-- Replace the attempt that holds the token `previous`, if it failed, or was abandoned before anything left.
-- Arguments: id, previous, state, token, fingerprint, mode, lease, hold, now
-- Columns: attempt, now one more; no row when there is nothing to take over
--
-- Atomic as one conditional statement on one row: of two successors one finds the token gone, and an owner
-- that failed in the last moment is not mistaken for one that was abandoned.  Creation,
-- expiry and request id stay those of the first attempt.  An expired record is absent, and left to `reserve`.
UPDATE retrysafe_records SET
    token = :token,
    fingerprint = :fingerprint,
    state = 'in_progress',
    mode = :mode,
    attempt = attempt + 1,
    lease_until = :now + :lease,
    checkpointed = 0,
    updated_at = :now,
    completed_at = NULL,
    held_until = :now + :hold,
    status = NULL,
    headers = NULL,
    body = NULL,
    omitted = 0
WHERE id = :id
    AND token = :previous
    AND state = :state
    AND version = 1
    AND typeof(attempt) = 'integer'
    AND (
        state = 'failed'
        OR (
            state = 'in_progress'
            AND checkpointed = 0
            AND coalesce(lease_until, expires_at) <= :now
        )
    )
    AND ({expired}) IS NOT TRUE
RETURNING attempt
