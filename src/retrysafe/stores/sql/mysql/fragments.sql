-- Parts of statements: a name in braces, as in {expired}, stands for the text below it.  What must mean the same
-- everywhere is written once.  Their arguments are arguments of the statements that use them.
--
-- The table is called `record` wherever one of them names its columns.

-- name: now
-- The server's time at which this statement began.  It stands still in a statement, and in none longer than that.
UTC_TIMESTAMP(6)

-- name: lease_from_now
-- When a lease that begins now ends.
-- Arguments: lease
{now} + INTERVAL :lease SECOND

-- name: retention_from_now
-- When a retention that begins now ends.
-- Arguments: retention
{now} + INTERVAL :retention SECOND

-- name: hold_from_now
-- When a hold that begins now ends.
-- Arguments: hold
{now} + INTERVAL :hold SECOND

-- name: due_from_now
-- When a payload is due, if at all.
-- Arguments: due_in
{now} + INTERVAL :due_in SECOND

-- name: now_in_seconds
-- The server's time in seconds since the epoch.
TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {now}) / 1e6

-- name: columns
-- The columns of a record as they are written; the response's four follow.
version, id, token, fingerprint, state, mode, attempt, lease_until, checkpointed,
door, scope, `key`, action, target, request_id, correlation_id,
created_at, updated_at, completed_at, expires_at, held_until,
details, retention_from, deliveries, seen_at, delivery_times

-- name: document
-- A record without its id and its body, as one JSON text: rows.py takes it apart.
--
-- A client spends more on the description of a column than on its value, and drivers differ in what they make of
-- dates, decimals and bytes.  Times are stored as such, for people, and read as seconds since the epoch.
JSON_ARRAY(
    record.version, HEX(record.token), HEX(record.fingerprint), record.state, record.mode, record.attempt,
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', record.lease_until) / 1e6, record.checkpointed,
    record.door, record.scope, record.`key`, record.action, record.target, record.request_id,
    record.correlation_id,
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', record.created_at) / 1e6,
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', record.updated_at) / 1e6,
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', record.completed_at) / 1e6,
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', record.expires_at) / 1e6,
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', record.held_until) / 1e6,
    record.details, record.retention_from, record.deliveries,
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', record.seen_at) / 1e6, record.delivery_times,
    record.status, record.headers, record.omitted
)

-- name: expired
-- True for a record that has expired: past its expiry, and not in progress, or in progress with lease and hold
-- both over.  A missing lease lasts as long as the record.  One whose payload is due at any time does not expire: it
-- was acknowledged, and must not be lost because no worker ran.
--
-- It is never true for a damaged row: a state or version that is not known is not judged.  For the opposite
-- write `({expired}) IS NOT TRUE`, because NOT unknown is unknown, and would hide the row.
record.version = 1
AND record.expires_at <= {now}
AND record.due_at IS NULL
AND (
    record.state IN ('completed', 'failed')
    OR (
        record.state = 'in_progress'
        AND record.held_until <= {now}
        AND COALESCE(record.lease_until, record.expires_at) <= {now}
    )
)

-- name: lapsed
-- True for a record in progress whose lease has ended: its owner died, or lost the store.
--
-- A missing lease lasts as long as the record, as in `take_over`, so the lease of a held record ends then too.
record.state = 'in_progress' AND COALESCE(record.lease_until, record.expires_at) <= {now}

-- name: abandoned
-- True for a record whose lease has ended, and which no worker is to handle: it waits for an operator.
{lapsed} AND record.due_at IS NULL

-- name: waiting
-- True for a record whose payload a worker is to handle, for the first time or again.
record.due_at IS NOT NULL AND (record.state = 'failed' OR ({lapsed}))

-- name: effective_state
-- The state of a record, or `expired`, `abandoned` or `waiting`, which are not stored; of a damaged one, whatever is
-- in its state.
CASE
    WHEN {expired} THEN 'expired' WHEN {abandoned} THEN 'abandoned' WHEN {waiting} THEN 'waiting' ELSE record.state
END

-- name: found
-- What a claim finds after it tried to reserve: by its own token, and never by how many rows were affected, because
-- with CLIENT.FOUND_ROWS an insert that met a record reports one row as well.
-- Arguments: ids, pairs
SELECT
    record.id,
    CASE
        WHEN (record.id, record.token) IN (:pairs) AND record.state = 'in_progress' THEN record.attempt
    END,
    ({expired}) IS TRUE,
    CASE
        WHEN (record.id, record.token) IN (:pairs) AND record.state = 'in_progress' THEN NULL ELSE {document}
    END,
    CASE
        WHEN (record.id, record.token) IN (:pairs) AND record.state = 'in_progress' THEN NULL ELSE record.body
    END,
    {now_in_seconds}
FROM retrysafe_records AS record FORCE INDEX (PRIMARY)
WHERE record.id IN (:ids)

-- name: running
-- The records that are running under these tokens; locks them, but for those that another transaction has locked.
-- Arguments: ids, pairs
--
-- LIMIT is more than there can be: it keeps the server from merging this into the statement around it.
SELECT record.id FROM retrysafe_records AS record FORCE INDEX (PRIMARY)
WHERE record.id IN (:ids) AND (record.id, record.token) IN (:pairs) AND record.state = 'in_progress'
ORDER BY record.id
LIMIT 1000
FOR UPDATE SKIP LOCKED

-- name: listing_columns
-- A record for an operator, then its effective state, the size of its body, now, the size of its payload, and when
-- that is due.
-- Arguments: bodies
--
-- Without bodies each is empty, and not read: its length is known without it.  One that is missing stays so,
-- because it is damage that is to be reported.
record.id, {document},
CASE WHEN :bodies = 1 THEN record.body WHEN record.body IS NOT NULL THEN x'' END,
{effective_state}, COALESCE(OCTET_LENGTH(record.body), 0), {now_in_seconds},
OCTET_LENGTH(record.payload), TIMESTAMPDIFF(MICROSECOND, '1970-01-01', record.due_at) / 1e6

-- name: listing_order
-- What an operator has to look at: the abandoned, the oldest of them first; then the youngest.
ORDER BY
    CASE WHEN {abandoned} THEN 0 ELSE 1 END,
    CASE WHEN {abandoned} THEN record.created_at END,
    record.created_at DESC

-- name: matches_query
-- True for a record that an operator asks for and that has not expired.
-- Arguments: states, door, parts, action, target, prefix, older, younger, key, request_id
--
-- An argument that is NULL excludes nothing.  States are a JSON array.  Texts are compared as bytes, because otherwise
-- the server would not see a space at the end.  `parts` is `part_of_scope` for each part of the scope that is asked for.
({expired}) IS NOT TRUE
AND :parts
AND (:states IS NULL OR INSTR(CAST(:states AS BINARY), CAST(CONCAT('"', {effective_state}, '"') AS BINARY)) > 0)
AND (:door IS NULL OR record.door = :door)
AND (:action IS NULL OR CAST(record.action AS BINARY) = CAST(:action AS BINARY))
AND (:target IS NULL OR CAST(record.target AS BINARY) = CAST(:target AS BINARY))
AND (
    :prefix IS NULL
    OR LEFT(CAST(record.target AS BINARY), OCTET_LENGTH(:prefix)) = CAST(:prefix AS BINARY)
)
AND (
    :older IS NULL
    OR record.created_at <= {now} - INTERVAL CAST(:older * 1000000 AS SIGNED) MICROSECOND
)
AND (
    :younger IS NULL
    OR record.created_at >= {now} - INTERVAL CAST(:younger * 1000000 AS SIGNED) MICROSECOND
)
AND (:key IS NULL OR CAST(record.`key` AS BINARY) = CAST(:key AS BINARY))
AND (:request_id IS NULL OR CAST(record.request_id AS BINARY) = CAST(:request_id AS BINARY))

-- name: record_summaries
-- Every record as statistics need it; its effective state is a number, because it is compared often:
-- 1 abandoned, 2 waiting, 3 in_progress, 4 completed, 5 failed, 6 expired, 0 in an unknown state.
--
-- The length of a body is known without fetching it.
SELECT
    record.door, record.action,
    CASE record.door WHEN 'request' THEN record.target ELSE '' END AS route_target,
    record.scope, record.created_at, record.completed_at, record.deliveries, record.due_at,
    COALESCE(OCTET_LENGTH(record.body), 0) AS size,
    CASE
        WHEN {expired} THEN 6
        WHEN {abandoned} THEN 1
        WHEN {waiting} THEN 2
        WHEN record.state = 'in_progress' THEN 3
        WHEN record.state = 'completed' THEN 4
        WHEN record.state = 'failed' THEN 5
        ELSE 0
    END AS state_number
FROM retrysafe_records AS record

-- name: group_counts
-- Of a group of `record_summaries`: the records in each of the five states, and the bytes of their bodies.
CAST(SUM(state_number = 1) AS SIGNED), CAST(SUM(state_number = 2) AS SIGNED),
CAST(SUM(state_number = 3) AS SIGNED), CAST(SUM(state_number = 4) AS SIGNED),
CAST(SUM(state_number = 5) AS SIGNED),
CAST(SUM(size) AS SIGNED)

-- name: cleanup_is_due
-- True if the next round of cleanup is due, or later than in `longest` seconds: a clock that was wrong, or text
-- that is not a time, must not end cleanup.
-- Arguments: longest
(
    CASE WHEN meta.value REGEXP '^[0-9]+([.][0-9]+)?$'
        THEN CAST(meta.value AS DECIMAL(30, 6)) - {now_in_seconds} ELSE 0
    END NOT BETWEEN 1e-6 AND :longest
)

-- name: without_key
-- True of a verdict of calls without a key: they were served, or refused because a key is required.
verdict IN ('keyless', 'key-missing')

-- name: audited
-- What the audit trail has of a record that was just given this token.
-- Arguments: id, fence
SELECT record.`key`, record.scope, record.action, record.target, record.request_id
FROM retrysafe_records AS record
WHERE record.id = :id AND record.token = :fence
