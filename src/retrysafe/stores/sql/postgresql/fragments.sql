-- Parts of statements: a name in braces, as in {expired}, stands for the text below it.  What must mean the same
-- everywhere is written once.  Their arguments are arguments of the statements that use them.
--
-- The table is called `record` wherever one of them names its columns.

-- name: now
-- The server's time at which this statement arrived.
--
-- It is not now(), which stands still in a transaction of the caller's own, nor clock_timestamp(), which
-- would be another time in each place of one statement.
statement_timestamp()

-- name: columns
-- The columns of a record as they are written; the response's four follow.  To read them, see `record_columns`.
version, id, token, fingerprint, state, mode, attempt, lease_until, checkpointed,
door, scope, key, action, target, request_id, correlation_id,
created_at, updated_at, completed_at, expires_at, held_until,
details, retention_from, deliveries, seen_at, delivery_times

-- name: record_columns
-- The columns of a record in the order in which codec.decode reads them; the response's four follow.
--
-- Times are stored as such, for people, and read as seconds since the epoch.
record.version, record.id, record.token, record.fingerprint, record.state, record.mode, record.attempt,
date_part('epoch', record.lease_until), record.checkpointed,
record.door, record.scope, record.key, record.action, record.target, record.request_id, record.correlation_id,
date_part('epoch', record.created_at), date_part('epoch', record.updated_at),
date_part('epoch', record.completed_at), date_part('epoch', record.expires_at),
date_part('epoch', record.held_until),
record.details, record.retention_from, record.deliveries, date_part('epoch', record.seen_at),
record.delivery_times

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
        AND coalesce(record.lease_until, record.expires_at) <= {now}
    )
)

-- name: lapsed
-- True for a record in progress whose lease has ended: its owner died, or lost the store.
--
-- A missing lease lasts as long as the record, as in `take_over`, so the lease of a held record ends then too.
record.state = 'in_progress' AND coalesce(record.lease_until, record.expires_at) <= {now}

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

-- name: lock_timeout
-- Always true: from here on this transaction waits for no row longer than `patience` seconds.
-- Arguments: patience
--
-- It is one of the conditions of a statement, so it is set before a row is waited for, costs no round trip, ends
-- with the transaction, and works behind a pooler that gives every transaction another session.  Zero would mean
-- for ever.
set_config(
    'lock_timeout',
    CAST(CAST(least(greatest(CAST(:patience AS float8) * 1000, 1), 2147483647) AS integer) AS text),
    true
) IS NOT NULL

-- name: durable_commit
-- Always true: this commit is on disk before it is acknowledged, whatever the role or the database has as its
-- default.
--
-- Only `off` is overruled.  It is one of the conditions of a statement, as `lock_timeout` is and for the same
-- reasons.
set_config(
    'synchronous_commit',
    CASE current_setting('synchronous_commit')
        WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit')
    END,
    true
) IS NOT NULL

-- name: notify_waiters
-- Notifies listeners that the record is finished or released, if a request may be waiting for it.
-- Arguments: announced
--
-- Only then: a notification makes commits wait for each other.  It is delivered with the commit, or never.
CASE WHEN CAST(:announced AS integer) = 1 THEN
    CAST(pg_notify('retrysafe', encode(record.id, 'hex')) AS text)
END

-- name: completion
-- Stores the outcome of a running record, in time or late; more conditions follow.
-- Arguments: id, token, state, status, headers, body, omitted, details, retention, retention_from, due_in
--
-- Only a late record has its expiry changed, or one whose retention is counted from the last update; to name an
-- indexed column with its old value is not a change here.
UPDATE retrysafe_records AS record SET
    state = CAST(:state AS text),
    completed_at = {now},
    updated_at = {now},
    expires_at = CASE
        WHEN record.expires_at <= {now} OR CAST(:retention_from AS text) = 'update'
            THEN {now} + CAST(:retention AS float8) * interval '1 second'
        ELSE record.expires_at
    END,
    status = CAST(:status AS integer),
    headers = CAST(:headers AS text),
    body = CAST(:body AS bytea),
    omitted = CAST(:omitted AS smallint),
    details = CAST(:details AS text),
    due_at = {now} + CAST(:due_in AS float8) * interval '1 second'
WHERE record.id = CAST(:id AS bytea)
    AND record.token = CAST(:token AS bytea)
    AND record.state = 'in_progress'

-- name: claim_rows
-- The claims of a batch as a table: id, token, lease, announced.
-- Arguments: claims
--
-- They come as one JSON text, [[id, token, lease, announced], ...] with bytes in hexadecimal, which every
-- driver can send.  The condition on the length excludes nothing, but makes the planner expect few rows, so that
-- it looks each of them up by its id, even in a table that was never analysed.
SELECT
    decode(value ->> 0, 'hex') AS id,
    decode(value ->> 1, 'hex') AS token,
    CAST(value ->> 2 AS float8) AS lease,
    CAST(value ->> 3 AS integer) AS announced
FROM json_array_elements(CAST(:claims AS json)) AS element (value)
WHERE json_array_length(value) = 4

-- name: listing_columns
-- The columns of a record for an operator, then its effective state, the size of its body, now, the size of its
-- payload, and when that is due.
-- Arguments: bodies
--
-- Without bodies each is empty, and not read: its length is known without it.  One that is missing stays so,
-- because it is damage that is to be reported.
{record_columns}, record.status, record.headers,
CASE
    WHEN CAST(:bodies AS integer) = 1 THEN record.body
    WHEN record.body IS NOT NULL THEN CAST('' AS bytea)
END,
record.omitted, {effective_state}, coalesce(octet_length(record.body), 0), date_part('epoch', {now}),
octet_length(record.payload), date_part('epoch', record.due_at)

-- name: listing_order
-- What an operator has to look at: the abandoned, the oldest of them first; then the youngest.
ORDER BY
    CASE WHEN {abandoned} THEN 0 ELSE 1 END,
    CASE WHEN {abandoned} THEN record.created_at END,
    record.created_at DESC

-- name: matches_query
-- True for a record that an operator asks for and that has not expired.
-- Arguments: states, door, scope, part, action, target, prefix, older, younger, key, request_id
--
-- An argument that is NULL excludes nothing.  States and scope are JSON arrays, the scope's of parts as the
-- scope column has them.  JSON is not parsed here: a scope that is not JSON would make the statement fail for
-- all, and so would a zero character in one.  The parts are pairs of strings, and a pattern takes them out one
-- after the other.  `part` is the text of one of them, so that most rows need not be taken apart.
({expired}) IS NOT TRUE
AND (CAST(:states AS text) IS NULL OR strpos(CAST(:states AS text), '"' || {effective_state} || '"') > 0)
AND (CAST(:door AS text) IS NULL OR record.door = CAST(:door AS text))
AND (CAST(:action AS text) IS NULL OR record.action = CAST(:action AS text))
AND (CAST(:target AS text) IS NULL OR record.target = CAST(:target AS text))
AND (CAST(:prefix AS text) IS NULL OR starts_with(record.target, CAST(:prefix AS text)))
AND (
    CAST(:older AS float8) IS NULL
    OR date_part('epoch', record.created_at) <= date_part('epoch', {now}) - CAST(:older AS float8)
)
AND (
    CAST(:younger AS float8) IS NULL
    OR date_part('epoch', record.created_at) >= date_part('epoch', {now}) - CAST(:younger AS float8)
)
AND (CAST(:key AS text) IS NULL OR record.key = CAST(:key AS text))
AND (CAST(:request_id AS text) IS NULL OR record.request_id = CAST(:request_id AS text))
AND (
    CAST(:scope AS text) IS NULL
    OR (
        strpos(record.scope, CAST(:part AS text)) > 0
        AND NOT EXISTS (
            SELECT pair[1]
            FROM regexp_matches(CAST(:scope AS text), '(\["([^"\\]|\\.)*","([^"\\]|\\.)*"\])', 'g') AS pair
            EXCEPT
            SELECT pair[1]
            FROM regexp_matches(record.scope, '(\["([^"\\]|\\.)*","([^"\\]|\\.)*"\])', 'g') AS pair
        )
    )
)

-- name: record_summaries
-- Every record as statistics need it; its effective state is a number, because it is compared often:
-- 1 abandoned, 2 waiting, 3 in_progress, 4 completed, 5 failed, 6 expired, 0 in an unknown state.
--
-- The length of a body is known without fetching it.
SELECT
    record.door, record.action,
    CASE record.door WHEN 'request' THEN record.target ELSE '' END AS route_target,
    record.scope, record.created_at, record.completed_at, record.deliveries, record.due_at,
    coalesce(octet_length(record.body), 0) AS size,
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
-- Of a group of {record_summaries}: the records in each of the five states, and the bytes of their bodies.
count(*) FILTER (WHERE state_number = 1), count(*) FILTER (WHERE state_number = 2),
count(*) FILTER (WHERE state_number = 3), count(*) FILTER (WHERE state_number = 4),
count(*) FILTER (WHERE state_number = 5),
CAST(sum(size) AS bigint)

-- name: scope_parts
-- The parts of a scope, as an array of texts that an index can hold.
--
-- Where a value has brackets and a comma in it, it is split into several texts, here and in what is looked for: so
-- this finds too much rather than too little, and `matches_query` decides.
string_to_array(btrim(record.scope, '[]'), '],[')

-- name: cleanup_is_due
-- True if the next round of cleanup is due, or later than in `longest` seconds: a clock that was wrong, or text
-- that is not a time, must not end cleanup.
-- Arguments: longest
(
    CASE WHEN meta.value ~ '^[0-9]+([.][0-9]+)?$'
        THEN CAST(meta.value AS float8) - date_part('epoch', {now}) ELSE 0
    END NOT BETWEEN 1e-6 AND CAST(:longest AS float8)
)

-- name: without_key
-- True of a verdict of calls without a key: they were served, or refused because a key is required.
verdict IN ('keyless', 'key-missing')
