-- The life of a record: looked up, reserved, taken over, checkpointed, finished, released, purged.
--
-- The server has no RETURNING, so most calls are several statements, with a semicolon between them.  A call's rows are
-- those of its SELECTs.  batch.py writes the calls of a batch as one text, and as one transaction if more than one
-- statement writes or locks.
--
-- What a call has changed is read, and never counted: with CLIENT.FOUND_ROWS, which a driver may have set, the number
-- of affected rows means something else.  There are three ways to read it.  Where the change gives the row a new
-- token, that token is looked for afterwards.  Where its condition has no time in it, the row is locked and read
-- first, and changed then: nothing comes between.  Otherwise the row is marked with a token that no attempt has,
-- which never leaves the transaction.
--
-- FORCE INDEX, because on a small or never analysed table the server would rather read all of it, and wait for
-- rows that others have locked.

-- name: look
-- The record of a key, unless it has expired.
-- Arguments: id
-- Columns: those of a record, then now
--
-- One lookup by primary key, which does not wait.  A damaged row is shown, never skipped: see `expired`.
SELECT record.id, {document}, record.body, {now_in_seconds}
FROM retrysafe_records AS record
WHERE record.id = :id AND ({expired}) IS NOT TRUE

-- name: reserve
-- Reserve keys that have no records, and return the records of the others.
-- Arguments: rows, id, token, fingerprint, mode, lease, retention, hold, door, scope, key, action, target, request_id,
--            correlation_id, details, retention_from, payload, due_in, ids, pairs
-- Columns: id; attempt, NULL if the record is not this claim's own; whether it has expired, and then it is for
--          `replace_expired`; and, if it is not the claim's own, those of a record, then now; no row when a record
--          appeared and disappeared meanwhile
--
-- Atomic as one insert: of many the primary key admits one, and the others change nothing.  Claims are a table with
-- those columns that differ, sorted by id, so that processes lock in the same order.  It looks first, without a lock,
-- so a replay waits for nothing and writes nothing.  What came of it is read when it is committed.
INSERT INTO retrysafe_records (
    {columns}, status, headers, body, omitted, payload, due_at
)
SELECT
    1, :id, :token, :fingerprint, 'in_progress', :mode, 1, {lease_from_now}, 0,
    :door, :scope, :key, :action, :target, :request_id, :correlation_id,
    {now}, {now}, NULL, {retention_from_now}, {hold_from_now},
    :details, :retention_from, 1, NULL, NULL,
    NULL, NULL, NULL, 0,
    :payload, CASE WHEN :payload IS NOT NULL THEN {due_from_now} END
FROM (:rows) AS `each`
WHERE NOT EXISTS (SELECT 1 FROM retrysafe_records AS record WHERE record.id = :id)
ON DUPLICATE KEY UPDATE id = retrysafe_records.id;
{found}

-- name: replace_expired
-- Reserve a key whose record has expired; columns as those of `reserve`.
-- Arguments: id, token, fingerprint, mode, lease, retention, hold, door, scope, key, action, target,
--            request_id, correlation_id, details, retention_from, payload, due_in, ids, pairs
--
-- Atomic as one conditional statement on one row.  Every column is set again, so nothing of the old record remains.
UPDATE retrysafe_records AS record SET
    version = 1,
    token = :token,
    fingerprint = :fingerprint,
    state = 'in_progress',
    mode = :mode,
    attempt = 1,
    lease_until = {lease_from_now},
    checkpointed = 0,
    door = :door,
    scope = :scope,
    `key` = :key,
    action = :action,
    target = :target,
    request_id = :request_id,
    correlation_id = :correlation_id,
    created_at = {now},
    updated_at = {now},
    completed_at = NULL,
    expires_at = {retention_from_now},
    held_until = {hold_from_now},
    details = :details,
    retention_from = :retention_from,
    deliveries = 1,
    seen_at = NULL,
    delivery_times = NULL,
    status = NULL,
    headers = NULL,
    body = NULL,
    omitted = 0,
    payload = :payload,
    due_at = CASE WHEN :payload IS NOT NULL THEN {due_from_now} END
WHERE record.id = :id AND {expired};
{found}

-- name: lock
-- Lock a record that another transaction has not locked, in the transaction that changes it then.
-- Arguments: id
--
-- It gives no row: what it finds is not asked for.  The condition is one that the server has to look at the row for.
SELECT 1 FROM retrysafe_records AS record WHERE record.id = :id AND record.attempt < 0 FOR UPDATE NOWAIT

-- name: take_over
-- Replace the attempt that holds the token `previous`, if it failed, or was abandoned before anything left.
-- Arguments: id, previous, state, token, fingerprint, mode, lease, hold, details, retention, retention_from,
--            payload, due_in, only_stored
-- Columns: attempt, now one more; no row when there is nothing to take over
--
-- Atomic as one conditional statement on one row: of two successors one finds the token gone, and an owner that
-- failed in the last moment is not mistaken for one that was abandoned.  Creation and request id stay those of
-- the first attempt, and so does the expiry, unless it is counted from the last update.  A payload stays, unless the
-- claim brings another one; a claim that is only stored takes over nothing that is due at any time.  An expired record
-- is absent, and left to `reserve`.
UPDATE retrysafe_records AS record SET
    token = :token,
    fingerprint = :fingerprint,
    state = 'in_progress',
    mode = :mode,
    attempt = record.attempt + 1,
    lease_until = {lease_from_now},
    checkpointed = 0,
    updated_at = {now},
    completed_at = NULL,
    expires_at = CASE :retention_from WHEN 'update' THEN {retention_from_now} ELSE record.expires_at END,
    held_until = {hold_from_now},
    details = :details,
    retention_from = :retention_from,
    status = NULL,
    headers = NULL,
    body = NULL,
    omitted = 0,
    due_at = CASE WHEN COALESCE(:payload, record.payload) IS NOT NULL THEN {due_from_now} END,
    payload = COALESCE(:payload, record.payload)
WHERE record.id = :id
    AND record.token = :previous
    AND record.state = :state
    AND (:only_stored = 0 OR record.due_at IS NULL)
    AND record.version = 1
    AND (
        record.state = 'failed'
        OR (
            record.state = 'in_progress'
            AND record.checkpointed = 0
            AND COALESCE(record.lease_until, record.expires_at) <= {now}
        )
    )
    AND ({expired}) IS NOT TRUE;
SELECT record.attempt FROM retrysafe_records AS record
WHERE record.id = :id AND record.token = :token AND record.state = 'in_progress'

-- name: checkpoint
-- Note on a running record that a response with this status and these headers begins to leave.
-- Arguments: id, token, status, headers, hold, retention, retention_from
-- Columns: 1; no row when fenced
--
-- Atomic and fenced: the row is locked when it is found.
SELECT 1 FROM retrysafe_records AS record
WHERE record.id = :id AND record.token = :token AND record.state = 'in_progress' FOR UPDATE;
UPDATE retrysafe_records AS record SET
    checkpointed = 1,
    status = :status,
    headers = :headers,
    expires_at = CASE :retention_from WHEN 'update' THEN {retention_from_now} ELSE record.expires_at END,
    held_until = GREATEST(record.held_until, {hold_from_now}),
    updated_at = {now}
WHERE record.id = :id AND record.token = :token AND record.state = 'in_progress'

-- name: finish
-- Store the outcomes of running records, in time or late.
-- Arguments: rows, id, token, state, status, headers, body, omitted, details, retention, ids, pairs
-- Columns: id of each record that was running under its token, and not locked by another transaction
--
-- Atomic and fenced: the rows are locked when they are found, in the order of their ids, and nothing is ever inserted.
-- Those that others have locked are skipped, when they are found and again when they are changed, so it waits for
-- none.  Outcomes are a table with those columns that differ.  Only a late record has its expiry changed: to name an
-- indexed column with its old value does not touch the index.
{running};
UPDATE ({running}) AS free
STRAIGHT_JOIN (:rows) AS `each` ON :id = free.id
STRAIGHT_JOIN retrysafe_records AS record FORCE INDEX (PRIMARY) ON record.id = free.id
SET
    record.state = :state,
    record.completed_at = {now},
    record.updated_at = {now},
    record.expires_at = CASE
        WHEN record.expires_at <= {now} THEN {retention_from_now} ELSE record.expires_at
    END,
    record.status = :status,
    record.headers = :headers,
    record.body = :body,
    record.omitted = :omitted,
    record.details = :details
WHERE record.token = :token AND record.state = 'in_progress'

-- name: finish_late
-- Store the outcome of a running record, in time or late, whose retention may be counted from the last update.
-- Arguments: id, token, state, status, headers, body, omitted, details, retention, retention_from
-- Columns: 1; no row when fenced
--
-- Atomic and fenced: the row is locked when it is found.
SELECT 1 FROM retrysafe_records AS record
WHERE record.id = :id AND record.token = :token AND record.state = 'in_progress' FOR UPDATE;
UPDATE retrysafe_records AS record SET
    state = :state,
    completed_at = {now},
    updated_at = {now},
    expires_at = CASE
        WHEN record.expires_at <= {now} OR :retention_from = 'update' THEN {retention_from_now}
        ELSE record.expires_at
    END,
    status = :status,
    headers = :headers,
    body = :body,
    omitted = :omitted,
    details = :details
WHERE record.id = :id AND record.token = :token AND record.state = 'in_progress'

-- name: finish_received
-- Store the outcome of a running record whose payload may be due, in time or late.
-- Arguments: id, token, state, status, headers, body, omitted, details, retention, retention_from, due_in
-- Columns: 1; no row when fenced
--
-- Atomic and fenced: the row is locked when it is found.
{conclude}

-- name: outcome_is_stored
-- Whether this very outcome was stored before, under this token: by a `finish` whose acknowledgement was lost.
-- Arguments: id, token, state, status, headers, body, omitted
-- Columns: 1; no row when not
SELECT 1 FROM retrysafe_records
WHERE id = :id
    AND token = :token
    AND state = :state
    AND status = :status
    AND headers = :headers
    AND body = :body
    AND omitted = :omitted

-- name: conclude
-- Store the outcome in a transaction of the caller's own, in time or late.
-- Arguments: id, token, state, status, headers, body, omitted, details, retention, retention_from, due_in
-- Columns: 1; no row when fenced
--
-- Atomic with whatever else that transaction has written, and fenced: the row is locked when it is found, and stays so
-- until the end of the transaction.
SELECT 1 FROM retrysafe_records AS record
WHERE record.id = :id AND record.token = :token AND record.state = 'in_progress' FOR UPDATE;
UPDATE retrysafe_records AS record SET
    state = :state,
    completed_at = {now},
    updated_at = {now},
    expires_at = CASE
        WHEN record.expires_at <= {now} OR :retention_from = 'update' THEN {retention_from_now}
        ELSE record.expires_at
    END,
    status = :status,
    headers = :headers,
    body = :body,
    omitted = :omitted,
    details = :details,
    due_at = {due_from_now}
WHERE record.id = :id AND record.token = :token AND record.state = 'in_progress'

-- name: discard
-- In a transaction of the caller's own: delete the record of a key that has expired, or that a new attempt replaces
-- because it failed, or was abandoned before anything left.
-- Arguments: id, previous, previous_state
-- Columns: attempt of the record that is replaced, 0 of one that had expired; no row when nothing was deleted
--
-- Atomic with whatever else that transaction writes: if it is rolled back, the record is there again, and as it was.
UPDATE retrysafe_records AS record SET
    attempt = CASE WHEN {expired} THEN 0 ELSE record.attempt END,
    token = x'00'
WHERE record.id = :id
    AND (
        ({expired})
        OR (
            record.token = :previous
            AND record.state = :previous_state
            AND record.version = 1
            AND (
                record.state = 'failed'
                OR (record.checkpointed = 0 AND COALESCE(record.lease_until, record.expires_at) <= {now})
            )
        )
    );
SELECT record.attempt FROM retrysafe_records AS record WHERE record.id = :id AND record.token = x'00';
DELETE FROM retrysafe_records WHERE id = :id AND token = x'00'

-- name: store_within
-- In a transaction of the caller's own: store the record of an operation that is part of it, with its outcome.
-- Arguments: id, token, fingerprint, mode, attempt, lease, retention, hold, door, scope, key, action, target,
--            request_id, correlation_id, details, retention_from, state, status, headers, body, omitted
-- Columns: 1; no row when the key is taken
--
-- Atomic with whatever else that transaction writes.  It waits for another transaction that has stored this key and
-- is not over, as long as any statement of the caller's would.  What it has stored is found with a lock, because in
-- REPEATABLE READ the transaction would otherwise not see a record that was in the way.
INSERT INTO retrysafe_records (
    {columns}, status, headers, body, omitted
)
SELECT
    1, :id, :token, :fingerprint, :state, :mode, :attempt, {lease_from_now}, 0,
    :door, :scope, :key, :action, :target, :request_id, :correlation_id,
    {now}, {now}, {now}, {retention_from_now}, {hold_from_now},
    :details, :retention_from, 1, NULL, NULL,
    :status, :headers, :body, :omitted
FROM DUAL
ON DUPLICATE KEY UPDATE id = retrysafe_records.id;
SELECT 1 FROM retrysafe_records AS record WHERE record.id = :id AND record.token = :token FOR UPDATE

-- name: release
-- Delete a running record.
-- Arguments: id, token
-- Columns: 1; no row when fenced
--
-- Atomic and fenced: the row is locked when it is found.
SELECT 1 FROM retrysafe_records AS record
WHERE record.id = :id AND record.token = :token AND record.state = 'in_progress' FOR UPDATE;
DELETE FROM retrysafe_records WHERE id = :id AND token = :token AND state = 'in_progress'

-- name: purge
-- Find and lock some expired records, the oldest first; of one door, or of all.  `purge_found` removes them.
-- Arguments: limit, door
-- Columns: id, state, and those of a record without its body, if it is in progress: the others are only counted
--
-- Rows that another transaction is removing or reserving are skipped, so processes which clean up at the same moment
-- share the work and do not wait.
SELECT record.id, record.state, CASE record.state WHEN 'in_progress' THEN {document} END
FROM retrysafe_records AS record FORCE INDEX (retrysafe_records_expires_at)
WHERE {expired} AND (:door IS NULL OR record.door = :door)
ORDER BY record.expires_at
LIMIT :limit
FOR UPDATE SKIP LOCKED

-- name: purge_found
-- Remove records that this transaction has found and locked.
-- Arguments: ids
--
-- Their expiry is looked at again, because a reservation in the same batch may have replaced one.
DELETE record FROM retrysafe_records AS record FORCE INDEX (PRIMARY) WHERE record.id IN (:ids) AND {expired}
