-- The life of a record: looked up, reserved, taken over, checkpointed, finished, released, purged.
--
-- A statement that changes a record is conditional: on its token, which is the fence, or on its expiry.  So it is
-- atomic by itself, and what it returns says whether it changed anything.  An operation writes with one of them
-- at most.

-- name: look
-- The record of a key, unless it has expired.
-- Arguments: id, now
-- Columns: those of a record, then now
--
-- One lookup by primary key.  A damaged row is shown, never skipped: see `expired`.
SELECT {columns}, status, headers, body, omitted, :now
FROM retrysafe_records
WHERE id = :id AND ({expired}) IS NOT TRUE

-- name: record_exists
-- Whether there is a record of a key, expired or not.
-- Arguments: id
-- Columns: 1; no row when there is none
--
-- Most keys are new, and this costs a fraction of `look`.
SELECT 1 FROM retrysafe_records WHERE id = :id

-- name: reserve
-- Reserve a key that has no record, or whose record has expired.
-- Arguments: id, token, fingerprint, mode, lease, retention, hold, door, scope, key, action, target,
--            request_id, correlation_id, details, retention_from, payload, due_in, now
-- Columns: attempt; no row when the key is reserved
--
-- Atomic as one statement on one row: of many inserts the primary key admits one, and the expired record is
-- replaced by the same statement that found it expired.  Every column is set again, so nothing of the old record
-- remains.
INSERT INTO retrysafe_records (
    {columns}, status, headers, body, omitted, payload, due_at
)
VALUES (
    1, :id, :token, :fingerprint, 'in_progress', :mode, 1, :now + :lease, 0,
    :door, :scope, :key, :action, :target, :request_id, :correlation_id,
    :now, :now, NULL, :now + :retention, :now + :hold,
    :details, :retention_from, 1, NULL, NULL,
    NULL, NULL, NULL, 0, :payload, CASE WHEN :payload IS NOT NULL THEN :now + :due_in END
)
ON CONFLICT (id) DO UPDATE SET
    version = excluded.version,
    token = excluded.token,
    fingerprint = excluded.fingerprint,
    state = excluded.state,
    mode = excluded.mode,
    attempt = excluded.attempt,
    lease_until = excluded.lease_until,
    checkpointed = excluded.checkpointed,
    door = excluded.door,
    scope = excluded.scope,
    key = excluded.key,
    action = excluded.action,
    target = excluded.target,
    request_id = excluded.request_id,
    correlation_id = excluded.correlation_id,
    created_at = excluded.created_at,
    updated_at = excluded.updated_at,
    completed_at = excluded.completed_at,
    expires_at = excluded.expires_at,
    held_until = excluded.held_until,
    details = excluded.details,
    retention_from = excluded.retention_from,
    deliveries = excluded.deliveries,
    seen_at = excluded.seen_at,
    delivery_times = excluded.delivery_times,
    status = excluded.status,
    headers = excluded.headers,
    body = excluded.body,
    omitted = excluded.omitted,
    payload = excluded.payload,
    due_at = excluded.due_at
WHERE {expired}
RETURNING attempt

-- name: take_over
-- Replace the attempt that holds the token `previous`, if it failed, or was abandoned before anything left.
-- Arguments: id, previous, state, token, fingerprint, mode, lease, hold, details, retention, retention_from, payload,
--            due_in, only_stored, now
-- Columns: attempt, now one more; no row when there is nothing to take over
--
-- Atomic as one conditional statement on one row: of two successors one finds the token gone, and an owner that
-- failed in the last moment is not mistaken for one that was abandoned.  Creation and request id stay those of
-- the first attempt, and so does the expiry, unless it is counted from the last update.  A payload stays, unless the
-- claim brings another one; a claim that is only stored takes over nothing that is due at any time.  An expired record
-- is absent, and left to `reserve`.
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
    expires_at = CASE :retention_from WHEN 'update' THEN :now + :retention ELSE expires_at END,
    held_until = :now + :hold,
    details = :details,
    retention_from = :retention_from,
    status = NULL,
    headers = NULL,
    body = NULL,
    omitted = 0,
    payload = coalesce(:payload, payload),
    due_at = CASE WHEN coalesce(:payload, payload) IS NOT NULL THEN :now + :due_in END
WHERE id = :id
    AND token = :previous
    AND state = :state
    AND (:only_stored = 0 OR due_at IS NULL)
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

-- name: checkpoint
-- Note on a running record that a response with this status and these headers begins to leave.
-- Arguments: id, token, status, headers, hold, retention, retention_from, now
-- Columns: 1; no row when fenced
--
-- Atomic and fenced as one conditional statement on one row.
UPDATE retrysafe_records SET
    checkpointed = 1,
    status = :status,
    headers = :headers,
    expires_at = CASE :retention_from WHEN 'update' THEN :now + :retention ELSE expires_at END,
    held_until = max(held_until, :now + :hold),
    updated_at = :now
WHERE id = :id AND token = :token AND state = 'in_progress'
RETURNING 1

-- name: finish
-- Store the outcome of a running record that is not past its expiry.
-- Arguments: id, token, state, status, headers, body, omitted, details, now
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
    omitted = :omitted,
    details = :details
WHERE id = :id AND token = :token AND state = 'in_progress' AND expires_at > :now
RETURNING 1

-- name: finish_late
-- Store the outcome of a running record whose expiry has passed, or is counted from the last update; it can be
-- seen for its retention from now on.
-- Arguments: id, token, state, status, headers, body, omitted, details, retention, retention_from, now
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
    omitted = :omitted,
    details = :details
WHERE id = :id AND token = :token AND state = 'in_progress'
    AND (expires_at <= :now OR :retention_from = 'update')
RETURNING 1

-- name: finish_received
-- Store the outcome of a running record whose payload may be due, in time or late.
-- Arguments: id, token, state, status, headers, body, omitted, details, retention, retention_from, due_in, now
-- Columns: 1; no row when fenced
--
-- Atomic and fenced as one conditional statement on one row.  Apart from `finish`, so that requests need not name an
-- indexed column.
{conclude}

-- name: outcome_is_stored
-- Whether this very outcome was stored before, under this token: by a `finish` whose acknowledgement was lost.
-- Arguments: id, token, state, status, headers, body, omitted
-- Columns: 1; no row when not
SELECT 1 FROM retrysafe_records
WHERE id = :id AND token = :token AND state = :state
    AND status = :status AND headers = :headers AND body = :body AND omitted = :omitted

-- name: conclude
-- Store the outcome in a transaction of the caller's own, in time or late.
-- Arguments: id, token, state, status, headers, body, omitted, details, retention, retention_from, due_in, now
-- Columns: 1; no row when fenced
--
-- Atomic with whatever else that transaction has written.
UPDATE retrysafe_records SET
    state = :state,
    completed_at = :now,
    updated_at = :now,
    expires_at = CASE
        WHEN expires_at <= :now OR :retention_from = 'update' THEN :now + :retention ELSE expires_at
    END,
    status = :status,
    headers = :headers,
    body = :body,
    omitted = :omitted,
    details = :details,
    due_at = :now + :due_in
WHERE id = :id AND token = :token AND state = 'in_progress'
RETURNING 1

-- name: discard
-- In a transaction of the caller's own: delete the record of a key that has expired, or that a new attempt replaces
-- because it failed, or was abandoned before anything left.
-- Arguments: id, previous, previous_state, now
-- Columns: attempt of the record that is replaced, 0 of one that had expired; no row when nothing was deleted
--
-- Atomic with whatever else that transaction writes: if it is rolled back, the record is there again.
DELETE FROM retrysafe_records
WHERE id = :id
    AND (
        ({expired})
        OR (
            token = :previous
            AND state = :previous_state
            AND version = 1
            AND typeof(attempt) = 'integer'
            AND (
                state = 'failed'
                OR (checkpointed = 0 AND coalesce(lease_until, expires_at) <= :now)
            )
        )
    )
RETURNING CASE WHEN {expired} THEN 0 ELSE attempt END

-- name: store_within
-- In a transaction of the caller's own: store the record of an operation that is part of it, with its outcome.
-- Arguments: id, token, fingerprint, mode, attempt, lease, retention, hold, door, scope, key, action, target,
--            request_id, correlation_id, details, retention_from, state, status, headers, body, omitted, now
-- Columns: 1; no row when the key is taken
--
-- Atomic with whatever else that transaction writes.
INSERT INTO retrysafe_records (
    {columns}, status, headers, body, omitted
)
VALUES (
    1, :id, :token, :fingerprint, :state, :mode, :attempt, :now + :lease, 0,
    :door, :scope, :key, :action, :target, :request_id, :correlation_id,
    :now, :now, :now, :now + :retention, :now + :hold,
    :details, :retention_from, 1, NULL, NULL,
    :status, :headers, :body, :omitted
)
ON CONFLICT (id) DO NOTHING
RETURNING 1

-- name: release
-- Delete a running record.
-- Arguments: id, token
-- Columns: 1; no row when fenced
--
-- Atomic and fenced as one conditional statement on one row.
DELETE FROM retrysafe_records
WHERE id = :id AND token = :token AND state = 'in_progress'
RETURNING 1

-- name: purge
-- Remove some expired records, the oldest first; of one door, or of all.
-- Arguments: limit, door, now
-- Columns: state, then those of a record; of one that is not in progress the response is left out, because it is
--          only counted and its body may be large
--
-- Atomic as one statement: what it finds expired it removes, and nothing comes between, so a record that was
-- claimed anew is never among them.
DELETE FROM retrysafe_records
WHERE rowid IN (
    SELECT rowid FROM retrysafe_records
    WHERE {expired} AND (:door IS NULL OR door = :door)
    ORDER BY expires_at
    LIMIT :limit
)
RETURNING
    state, {columns},
    CASE state WHEN 'in_progress' THEN status END,
    CASE state WHEN 'in_progress' THEN headers END,
    NULL,
    omitted
