-- The life of a record: looked up, reserved, taken over, checkpointed, finished, released, purged.
--
-- A statement that changes a record is conditional: on its token, which is the fence, or on its expiry.  So it is
-- atomic by itself, and what it returns says whether it changed anything.  An operation writes with one of them
-- at most.

-- name: look
-- The record of a key, unless it has expired.
-- Arguments: id
-- Columns: those of a record, then now
--
-- One lookup by primary key, which does not wait.  A damaged row is shown, never skipped: see `expired`.
SELECT {record_columns}, record.status, record.headers, record.body, record.omitted, date_part('epoch', {now})
FROM retrysafe_records AS record
WHERE record.id = CAST(:id AS bytea) AND ({expired}) IS NOT TRUE

-- name: reserve
-- Reserve a key that has no record, or whose record has expired; else return the record.
-- Arguments: id, token, fingerprint, mode, lease, retention, hold, door, scope, key, action, target,
--            request_id, correlation_id, details, retention_from, payload, due_in, patience
-- Columns: attempt; or NULL, and then those of a record, then now; no row when the key was reserved
--          while this statement ran, and then looking again finds the record
--
-- Atomic as one statement on one row: of many inserts the primary key admits one, and the expired record is
-- replaced by the same statement that found it expired.  Every column is set again, so nothing of the old record
-- remains.
--
-- It looks first.  Where something is found, nothing is inserted, so a replay takes no lock and writes
-- nothing, and still there is one round trip.
--
-- Of `found` and `claimed` one has a row at most.  The join that matches nothing returns it, with NULL for the
-- columns of the other, however many these are.
WITH found AS MATERIALIZED (
    SELECT {record_columns}, record.status, record.headers, record.body, record.omitted, date_part('epoch', {now})
    FROM retrysafe_records AS record
    WHERE record.id = CAST(:id AS bytea) AND ({expired}) IS NOT TRUE
),
claimed AS (
    INSERT INTO retrysafe_records AS record (
        {columns}, status, headers, body, omitted, payload, due_at
    )
    SELECT
        1, CAST(:id AS bytea), CAST(:token AS bytea), CAST(:fingerprint AS bytea),
        'in_progress', CAST(:mode AS text), 1, {now} + CAST(:lease AS float8) * interval '1 second', 0,
        CAST(:door AS text), CAST(:scope AS text), CAST(:key AS text), CAST(:action AS text),
        CAST(:target AS text), CAST(:request_id AS text), CAST(:correlation_id AS text),
        {now}, {now}, NULL,
        {now} + CAST(:retention AS float8) * interval '1 second',
        {now} + CAST(:hold AS float8) * interval '1 second',
        CAST(:details AS text), CAST(:retention_from AS text), 1, NULL, NULL,
        NULL, NULL, NULL, 0,
        CAST(:payload AS bytea),
        CASE WHEN CAST(:payload AS bytea) IS NOT NULL THEN {now} + CAST(:due_in AS float8) * interval '1 second' END
    WHERE NOT EXISTS (SELECT FROM found) AND {lock_timeout} AND {durable_commit}
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
    RETURNING record.attempt
)
SELECT claimed.attempt, found.*
FROM found
FULL JOIN claimed ON FALSE

-- name: batch
-- Many of `finish`, and of those `reserve` that bring no payload, by the function of migration 4.
-- Arguments: patience, reserve_place, reserve_id, reserve_token, reserve_fingerprint, reserve_mode,
--            reserve_lease, reserve_retention, reserve_hold, reserve_door, reserve_scope, reserve_key,
--            reserve_action, reserve_target, reserve_request_id, reserve_correlation_id, reserve_details,
--            reserve_retention_from, finish_place, finish_id, finish_token, finish_state, finish_status,
--            finish_headers, finish_body, finish_omitted, finish_details, finish_announced
-- Columns: place, then as those of `reserve`; of a `finish` that was stored, the place and 1
--
-- Atomic as one statement.
SELECT * FROM retrysafe_batch_1(
    CAST(:patience AS float8),
    CAST(:reserve_place AS integer[]),
    CAST(:reserve_id AS bytea[]),
    CAST(:reserve_token AS bytea[]),
    CAST(:reserve_fingerprint AS bytea[]),
    CAST(:reserve_mode AS text[]),
    CAST(:reserve_lease AS float8[]),
    CAST(:reserve_retention AS float8[]),
    CAST(:reserve_hold AS float8[]),
    CAST(:reserve_door AS text[]),
    CAST(:reserve_scope AS text[]),
    CAST(:reserve_key AS text[]),
    CAST(:reserve_action AS text[]),
    CAST(:reserve_target AS text[]),
    CAST(:reserve_request_id AS text[]),
    CAST(:reserve_correlation_id AS text[]),
    CAST(:reserve_details AS text[]),
    CAST(:reserve_retention_from AS text[]),
    CAST(:finish_place AS integer[]),
    CAST(:finish_id AS bytea[]),
    CAST(:finish_token AS bytea[]),
    CAST(:finish_state AS text[]),
    CAST(:finish_status AS integer[]),
    CAST(:finish_headers AS text[]),
    CAST(:finish_body AS bytea[]),
    CAST(:finish_omitted AS integer[]),
    CAST(:finish_details AS text[]),
    CAST(:finish_announced AS integer[])
)

-- name: take_over
-- Replace the attempt that holds the token `previous`, if it failed, or was abandoned before anything left.
-- Arguments: id, previous, state, token, fingerprint, mode, lease, hold, details, retention, retention_from,
--            payload, due_in, only_stored, patience
-- Columns: attempt, now one more; no row when there is nothing to take over
--
-- Atomic as one conditional statement on one row: of two successors one finds the token gone, and an owner that
-- failed in the last moment is not mistaken for one that was abandoned.  Creation and request id stay those of
-- the first attempt, and so does the expiry, unless it is counted from the last update.  A payload stays, unless the
-- claim brings another one; a claim that is only stored takes over nothing that is due at any time.  An expired record
-- is absent, and left to `reserve`.
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
    expires_at = CASE CAST(:retention_from AS text)
        WHEN 'update' THEN {now} + CAST(:retention AS float8) * interval '1 second' ELSE record.expires_at
    END,
    held_until = {now} + CAST(:hold AS float8) * interval '1 second',
    details = CAST(:details AS text),
    retention_from = CAST(:retention_from AS text),
    status = NULL,
    headers = NULL,
    body = NULL,
    omitted = 0,
    payload = coalesce(CAST(:payload AS bytea), record.payload),
    due_at = CASE WHEN coalesce(CAST(:payload AS bytea), record.payload) IS NOT NULL
        THEN {now} + CAST(:due_in AS float8) * interval '1 second'
    END
WHERE record.id = CAST(:id AS bytea)
    AND record.token = CAST(:previous AS bytea)
    AND record.state = CAST(:state AS text)
    AND (CAST(:only_stored AS integer) = 0 OR record.due_at IS NULL)
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

-- name: checkpoint
-- Note on a running record that a response with this status and these headers begins to leave.
-- Arguments: id, token, status, headers, hold, retention, retention_from, patience
-- Columns: 1; no row when fenced
--
-- Atomic and fenced as one conditional statement on one row.
UPDATE retrysafe_records AS record SET
    checkpointed = 1,
    status = CAST(:status AS integer),
    headers = CAST(:headers AS text),
    expires_at = CASE CAST(:retention_from AS text)
        WHEN 'update' THEN {now} + CAST(:retention AS float8) * interval '1 second' ELSE record.expires_at
    END,
    held_until = greatest(record.held_until, {now} + CAST(:hold AS float8) * interval '1 second'),
    updated_at = {now}
WHERE record.id = CAST(:id AS bytea)
    AND record.token = CAST(:token AS bytea)
    AND record.state = 'in_progress'
    AND {lock_timeout}
    AND {durable_commit}
RETURNING 1

-- name: finish
-- Store the outcome of a running record that is not past its expiry.
-- Arguments: id, token, state, status, headers, body, omitted, details, announced, patience
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
    omitted = CAST(:omitted AS smallint),
    details = CAST(:details AS text)
WHERE record.id = CAST(:id AS bytea)
    AND record.token = CAST(:token AS bytea)
    AND record.state = 'in_progress'
    AND record.expires_at > {now}
    AND {lock_timeout}
    AND {durable_commit}
RETURNING 1, {notify_waiters}

-- name: finish_late
-- Store the outcome of a running record whose expiry has passed, or is counted from the last update; it can be
-- seen for its retention from now on.
-- Arguments: id, token, state, status, headers, body, omitted, details, retention, retention_from, announced,
--            patience
-- Columns: 1, then nothing of interest; no row when fenced
--
-- Atomic and fenced as one conditional statement on one row.
UPDATE retrysafe_records AS record SET
    state = CAST(:state AS text),
    completed_at = {now},
    updated_at = {now},
    expires_at = {now} + CAST(:retention AS float8) * interval '1 second',
    status = CAST(:status AS integer),
    headers = CAST(:headers AS text),
    body = CAST(:body AS bytea),
    omitted = CAST(:omitted AS smallint),
    details = CAST(:details AS text)
WHERE record.id = CAST(:id AS bytea)
    AND record.token = CAST(:token AS bytea)
    AND record.state = 'in_progress'
    AND (record.expires_at <= {now} OR CAST(:retention_from AS text) = 'update')
    AND {lock_timeout}
    AND {durable_commit}
RETURNING 1, {notify_waiters}

-- name: finish_received
-- Store the outcome of a running record whose payload may be due, in time or late.
-- Arguments: id, token, state, status, headers, body, omitted, details, retention, retention_from, due_in,
--            announced, patience
-- Columns: 1, then nothing of interest; no row when fenced
--
-- Atomic and fenced as one conditional statement on one row.
{completion}
    AND {lock_timeout}
    AND {durable_commit}
RETURNING 1, {notify_waiters}

-- name: outcome_is_stored
-- Whether this very outcome was stored before, under this token: by a `finish` whose acknowledgement was lost.
-- Arguments: id, token, state, status, headers, body, omitted
-- Columns: 1; no row when not
--
-- A statement of its own, because it must see what was committed while the one before it waited for the row.
SELECT 1 FROM retrysafe_records
WHERE id = CAST(:id AS bytea)
    AND token = CAST(:token AS bytea)
    AND state = CAST(:state AS text)
    AND status = CAST(:status AS integer)
    AND headers = CAST(:headers AS text)
    AND body = CAST(:body AS bytea)
    AND omitted = CAST(:omitted AS smallint)

-- name: conclude
-- Store the outcome in a transaction of the caller's own, in time or late.
-- Arguments: id, token, state, status, headers, body, omitted, details, retention, retention_from, due_in,
--            lease, announced
-- Columns: 1, then nothing of interest; no row when fenced
--
-- Atomic with whatever else that transaction has written, and fenced: the row stays locked until its end.
-- Therefore its end must come.  For the rest of the transaction, which is the commit and what its triggers do,
-- no lock is waited for longer than the lease, and a worker that is frozen in it loses its session after
-- that time, so that the key does not stay locked.  What the caller had set shorter stays shorter.
{completion}
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

-- name: conclude_or_fail
-- As `conclude`, and an error when fenced: for a driver that sends the COMMIT right after it, without waiting.
-- Arguments: id, token, state, status, headers, body, omitted, details, retention, retention_from, due_in,
--            lease, announced
-- Columns: 1
--
-- The error is what undoes the transaction: the server skips what was sent with it, and commits nothing any more.
-- It is an invalid integer (22P02) whose text says that it is ours.  The text depends on the count, or the planner
-- would try the cast before the statement runs.
--
-- Between this statement and the COMMIT the server is not idle, but waits for the rest of what was sent to it.  Where
-- it has a timeout for that, from release 17 on, it is the lease, too.
WITH concluded AS ({conclude})
SELECT CASE
    WHEN count(*) = 0 THEN CAST('retrysafe completion fenced, ' || count(*) || ' records' AS integer)
    WHEN CAST(current_setting('server_version_num') AS integer) >= 170000 THEN length(set_config(
        'transaction_timeout',
        CAST(least(
            nullif(CAST(1000 * date_part(
                'epoch', CAST(current_setting('transaction_timeout') AS interval)
            ) AS bigint), 0),
            CAST(greatest(CAST(:lease AS float8) * 1000, 1) AS bigint),
            2147483647
        ) AS text),
        true
    ))
    ELSE 1
END
FROM concluded

-- name: discard
-- In a transaction of the caller's own: delete the record of a key that has expired, or that a new attempt replaces
-- because it failed, or was abandoned before anything left.
-- Arguments: id, previous, previous_state
-- Columns: attempt of the record that is replaced, 0 of one that had expired; no row when nothing was deleted
--
-- Atomic with whatever else that transaction writes: if it is rolled back, the record is there again.
DELETE FROM retrysafe_records AS record
WHERE record.id = CAST(:id AS bytea)
    AND (
        ({expired})
        OR (
            record.token = CAST(:previous AS bytea)
            AND record.state = CAST(:previous_state AS text)
            AND record.version = 1
            AND (
                record.state = 'failed'
                OR (record.checkpointed = 0 AND coalesce(record.lease_until, record.expires_at) <= {now})
            )
        )
    )
RETURNING CASE WHEN {expired} THEN 0 ELSE record.attempt END

-- name: store_within
-- In a transaction of the caller's own: store the record of an operation that is part of it, with its outcome.
-- Arguments: id, token, fingerprint, mode, attempt, lease, retention, hold, door, scope, key, action, target,
--            request_id, correlation_id, details, retention_from, state, status, headers, body, omitted
-- Columns: 1; no row when the key is taken
--
-- Atomic with whatever else that transaction writes.  It waits for another transaction that has stored this key and
-- is not over, as long as any statement of the caller's would.
INSERT INTO retrysafe_records (
    {columns}, status, headers, body, omitted
)
VALUES (
    1, CAST(:id AS bytea), CAST(:token AS bytea), CAST(:fingerprint AS bytea),
    CAST(:state AS text), CAST(:mode AS text), CAST(:attempt AS integer),
    {now} + CAST(:lease AS float8) * interval '1 second', 0,
    CAST(:door AS text), CAST(:scope AS text), CAST(:key AS text), CAST(:action AS text),
    CAST(:target AS text), CAST(:request_id AS text), CAST(:correlation_id AS text),
    {now}, {now}, {now},
    {now} + CAST(:retention AS float8) * interval '1 second',
    {now} + CAST(:hold AS float8) * interval '1 second',
    CAST(:details AS text), CAST(:retention_from AS text), 1, NULL, NULL,
    CAST(:status AS integer), CAST(:headers AS text), CAST(:body AS bytea), CAST(:omitted AS smallint)
)
ON CONFLICT (id) DO NOTHING
RETURNING 1

-- name: release
-- Delete a running record.
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

-- name: purge
-- Remove some expired records, the oldest first; of one door, or of all.
-- Arguments: limit, door
-- Columns: state, then those of a record; of one that is not in progress the response is left out, because it is
--          only counted and its body may be large
--
-- Atomic as one statement: what it finds expired it locks and removes, and nothing comes between, so a record
-- that was claimed anew is never among them.  Rows that another transaction is removing or reserving are skipped,
-- so processes which clean up at the same moment share the work and do not wait.
--
-- No time lies before -infinity.  But with two bounds the planner expects few rows, and takes the index on the
-- expiry, even in a table that was never analysed.
DELETE FROM retrysafe_records AS record
WHERE record.ctid = ANY (ARRAY(
    SELECT record.ctid FROM retrysafe_records AS record
    WHERE {expired} AND record.expires_at >= '-infinity'
        AND (CAST(:door AS text) IS NULL OR record.door = CAST(:door AS text))
    ORDER BY record.expires_at
    LIMIT CAST(:limit AS integer)
    FOR UPDATE SKIP LOCKED
))
RETURNING
    record.state, {record_columns},
    CASE record.state WHEN 'in_progress' THEN record.status END,
    CASE record.state WHEN 'in_progress' THEN record.headers END,
    CAST(NULL AS bytea),
    record.omitted
