-- What operators ask and do, the audit trail, and how calls ended.
--
-- Lists and statistics scan the table, because an index for them would cost every request; except by id, by the
-- subject of a callback or an operation, by what is due, and by what an operator has asked for an index on.
-- An intervention and its audit entry are written in one transaction: there is neither without the other.

-- name: set_timeouts
-- From here on, a statement of this transaction takes no longer than so many seconds, and waits for a lock no
-- longer than `patience`; and what it commits is on disk before it is acknowledged.
-- Arguments: seconds, patience
-- Columns: 1, then nothing of interest
--
-- It ends with the transaction, and so works behind a pooler that gives every transaction another session.
SELECT 1, set_config(
    'statement_timeout',
    CAST(CAST(least(greatest(CAST(:seconds AS float8) * 1000, 1), 2147483647) AS integer) AS text),
    true
)
WHERE {lock_timeout} AND {durable_commit}

-- name: list_records
-- Records that an operator asks for.
-- Arguments: states, door, scope, part, action, target, prefix, older, younger, key, request_id, bodies, limit
-- Columns: those of a record, then effective state, size, now, size of the payload, when it is due
--
-- One statement, so one view.  Only what is shown is fetched whole, after the limit.
SELECT {listing_columns}
FROM retrysafe_records AS record
WHERE record.id = ANY (ARRAY(
    SELECT record.id FROM retrysafe_records AS record
    WHERE {matches_query}
    {listing_order}
    LIMIT CAST(:limit AS bigint)
))
{listing_order}

-- name: list_records_by_id
-- As `list_records`, among the ids from low to high.
-- Arguments: low, high, states, door, scope, part, action, target, prefix, older, younger, key, request_id, bodies,
--            limit
-- Columns: those of a record, then effective state, size, now, size of the payload, when it is due
--
-- One statement, so one view; a range of the primary key.
SELECT {listing_columns}
FROM retrysafe_records AS record
WHERE record.id BETWEEN CAST(:low AS bytea) AND CAST(:high AS bytea) AND {matches_query}
{listing_order}
LIMIT CAST(:limit AS bigint)

-- name: list_records_by_request_id
-- As `list_records`, of one request.
-- Arguments: states, door, scope, part, action, target, prefix, older, younger, key, request_id, bodies, limit
-- Columns: those of a record, then effective state, size, now, size of the payload, when it is due
--
-- By the index on request ids, where an operator has made one.
SELECT {listing_columns}
FROM retrysafe_records AS record
WHERE record.request_id = CAST(:request_id AS text) AND {matches_query}
{listing_order}
LIMIT CAST(:limit AS bigint)

-- name: list_records_by_subject
-- As `list_records`, of what callbacks and operations have to do with one subject.
-- Arguments: states, door, scope, part, action, target, prefix, older, younger, key, request_id, bodies, limit
-- Columns: those of a record, then effective state, size, now, size of the payload, when it is due
--
-- By the partial index on targets.
SELECT {listing_columns}
FROM retrysafe_records AS record
WHERE record.door <> 'request' AND record.target = CAST(:target AS text) AND {matches_query}
{listing_order}
LIMIT CAST(:limit AS bigint)

-- name: list_records_by_scope
-- As `list_records`, of one scope or of a part of it.
-- Arguments: states, door, scope, part, action, target, prefix, older, younger, key, request_id, bodies, limit
-- Columns: those of a record, then effective state, size, now, size of the payload, when it is due
--
-- By the index on the parts of scopes, where an operator has made one.
SELECT {listing_columns}
FROM retrysafe_records AS record
WHERE record.id = ANY (ARRAY(
    SELECT record.id FROM retrysafe_records AS record
    WHERE {scope_parts} @> string_to_array(btrim(CAST(:scope AS text), '[]'), '],[') AND {matches_query}
    {listing_order}
    LIMIT CAST(:limit AS bigint)
))
{listing_order}

-- name: export_records
-- Records in the order of their ids, expired ones too.
-- Arguments: after, expiring, door, limit
-- Columns: those of a record
--
-- A range of the primary key.
SELECT {record_columns}, record.status, record.headers, record.body, record.omitted
FROM retrysafe_records AS record
WHERE record.id > CAST(:after AS bytea)
    AND (CAST(:door AS text) IS NULL OR record.door = CAST(:door AS text))
    AND (
        CAST(:expiring AS float8) IS NULL
        OR record.expires_at <= {now} + CAST(:expiring AS float8) * interval '1 second'
    )
ORDER BY record.id
LIMIT CAST(:limit AS bigint)

-- name: totals
-- How many records there are.
-- Columns: records abandoned, waiting, in_progress, completed, failed, and bytes of their bodies; records expired,
--          and in an unknown state; when the oldest in progress and the oldest abandoned were made, and since when
--          the oldest payload is due; now
--
-- It loads no body.
SELECT
    count(*) FILTER (WHERE state_number = 1),
    count(*) FILTER (WHERE state_number = 2),
    count(*) FILTER (WHERE state_number = 3),
    count(*) FILTER (WHERE state_number = 4),
    count(*) FILTER (WHERE state_number = 5),
    CAST(coalesce(sum(size) FILTER (WHERE state_number BETWEEN 1 AND 5), 0) AS bigint),
    count(*) FILTER (WHERE state_number = 6),
    count(*) FILTER (WHERE state_number = 0),
    date_part('epoch', min(created_at) FILTER (WHERE state_number = 3)),
    date_part('epoch', min(created_at) FILTER (WHERE state_number = 1)),
    date_part('epoch', min(due_at) FILTER (WHERE state_number = 2)),
    date_part('epoch', {now})
FROM ({record_summaries}) AS every

-- name: by_route
-- Methods and paths with the most records, the expired ones aside; of operations and callbacks the action alone,
-- because their target is an id.
-- Arguments: groups
-- Columns: action, target, then records abandoned, waiting, in_progress, completed, failed, and bytes of their bodies
--
-- It loads no body.
SELECT action, route_target, {group_counts}
FROM ({record_summaries}) AS every
WHERE state_number BETWEEN 1 AND 5
GROUP BY action, route_target
ORDER BY count(*) DESC, action, route_target
LIMIT CAST(:groups AS bigint)

-- name: by_door
-- As `by_route`, of doors.
-- Columns: door, then records abandoned, waiting, in_progress, completed, failed, and bytes of their bodies
SELECT door, {group_counts}
FROM ({record_summaries}) AS every
WHERE state_number BETWEEN 1 AND 5
GROUP BY door
ORDER BY count(*) DESC, door

-- name: by_scope
-- As `by_route`, of scopes.
-- Arguments: groups
-- Columns: scope, then records abandoned, waiting, in_progress, completed, failed, and bytes of their bodies
SELECT scope, {group_counts}
FROM ({record_summaries}) AS every
WHERE state_number BETWEEN 1 AND 5
GROUP BY scope
ORDER BY count(*) DESC, scope
LIMIT CAST(:groups AS bigint)

-- name: by_source
-- Sources of callbacks, those with the most events first.
-- Arguments: groups
-- Columns: action, events, deliveries, events handled, seconds from their first delivery to their completion: on
--          average, at most
--
-- It loads no body.
SELECT
    action,
    count(*),
    sum(deliveries),
    count(*) FILTER (WHERE state_number = 4),
    CAST(avg(date_part('epoch', completed_at - created_at)) FILTER (WHERE state_number = 4) AS float8),
    CAST(max(date_part('epoch', completed_at - created_at)) FILTER (WHERE state_number = 4) AS float8)
FROM ({record_summaries}) AS every
WHERE door = 'callback' AND state_number BETWEEN 1 AND 5
GROUP BY action
ORDER BY count(*) DESC, action
LIMIT CAST(:groups AS bigint)

-- name: count_expired
-- How many records a purge would remove.
-- Arguments: door
-- Columns: records
--
-- A range of the index on the expiry.
SELECT count(*) FROM retrysafe_records AS record
WHERE {expired} AND (CAST(:door AS text) IS NULL OR record.door = CAST(:door AS text))

-- name: admin_release
-- Delete a record that is abandoned, or that was seen completed or failed, by an operator's decision.
-- Arguments: id, token, state, patience
-- Columns: what the audit trail has of it: key, scope, action, target, request_id; no row when it is not as
--          it was seen
--
-- Atomic and fenced as one conditional statement on one row, by token and state: an owner that renewed or
-- finished meanwhile, and a successor, are left alone, and so is every lease that has not ended.  If another
-- transaction has locked the row it waits, and then judges what that one has left.  A checkpointed record is not
-- an exception: the operator knows what the client saw.
DELETE FROM retrysafe_records AS record
WHERE record.id = CAST(:id AS bytea)
    AND record.token = CAST(:token AS bytea)
    AND record.version = 1
    AND record.state = CAST(:state AS text)
    AND (record.state IN ('completed', 'failed') OR ({lapsed}))
    AND ({expired}) IS NOT TRUE
    AND {lock_timeout}
RETURNING record.key, record.scope, record.action, record.target, record.request_id

-- name: admin_resolve
-- Settle a record that is abandoned, as an operator found out.
-- Arguments: id, token, fence, state, status, headers, body, omitted, patience
-- Columns: what the audit trail has of it: key, scope, action, target, request_id; no row when it is not as
--          it was seen
--
-- Atomic and fenced as one conditional statement on one row, as `admin_release` is.  The new token `fence` shuts
-- out the owner, should it come back with an outcome of its own.  The record lasts for its whole retention from
-- now on: its client was told not to try again, and may come back much later; and a held record may be past its
-- expiry already.  No worker handles its payload any more.
UPDATE retrysafe_records AS record SET
    token = CAST(:fence AS bytea),
    state = CAST(:state AS text),
    completed_at = {now},
    updated_at = {now},
    expires_at = {now} + greatest(
        record.expires_at
            - CASE record.retention_from WHEN 'update' THEN record.updated_at ELSE record.created_at END,
        interval '0'
    ),
    status = CAST(:status AS integer),
    headers = CAST(:headers AS text),
    body = CAST(:body AS bytea),
    omitted = CAST(:omitted AS smallint),
    due_at = NULL
WHERE record.id = CAST(:id AS bytea)
    AND record.token = CAST(:token AS bytea)
    AND record.version = 1
    AND {lapsed}
    AND ({expired}) IS NOT TRUE
    AND {lock_timeout}
RETURNING record.key, record.scope, record.action, record.target, record.request_id

-- name: payload
-- What was delivered, where it is stored with the record of this id.
-- Arguments: id
-- Columns: payload, NULL if there is none; no row when there is no record
SELECT record.payload FROM retrysafe_records AS record
WHERE record.id = CAST(:id AS bytea) AND ({expired}) IS NOT TRUE

-- name: due
-- Deliveries that a worker may handle now, those first that could be handled first.
-- Arguments: action, limit
-- Columns: payload, then those of a record
--
-- By the partial index on what is due.  It locks nothing: a worker claims one by taking it over.
SELECT record.payload, {record_columns}, record.status, record.headers, record.body, record.omitted
FROM retrysafe_records AS record
WHERE record.due_at IS NOT NULL
    AND record.due_at <= {now}
    AND record.version = 1
    AND record.door = 'callback'
    AND record.action = CAST(:action AS text)
    AND record.payload IS NOT NULL
    AND {waiting}
ORDER BY record.due_at
LIMIT CAST(:limit AS bigint)

-- name: admin_redrive
-- Have a worker handle the payload of a record that was seen failed, abandoned or waiting, now.
-- Arguments: id, token, fence, state, status, headers, body, omitted, patience
-- Columns: what the audit trail has of it: key, scope, action, target, request_id; no row when it is not as
--          it was seen, or has no payload
--
-- Atomic and fenced as one conditional statement on one row, as `admin_release` is.  The new token `fence` shuts
-- out an owner that was taken for dead.  One that had not failed has no outcome, and is given this one.
UPDATE retrysafe_records AS record SET
    token = CAST(:fence AS bytea),
    state = 'failed',
    completed_at = CASE record.state WHEN 'failed' THEN record.completed_at ELSE {now} END,
    updated_at = {now},
    status = CASE record.state WHEN 'failed' THEN record.status ELSE CAST(:status AS integer) END,
    headers = CASE record.state WHEN 'failed' THEN record.headers ELSE CAST(:headers AS text) END,
    body = CASE record.state WHEN 'failed' THEN record.body ELSE CAST(:body AS bytea) END,
    omitted = CASE record.state WHEN 'failed' THEN record.omitted ELSE CAST(:omitted AS smallint) END,
    due_at = {now}
WHERE record.id = CAST(:id AS bytea)
    AND record.token = CAST(:token AS bytea)
    AND record.version = 1
    AND record.state = CAST(:state AS text)
    AND (record.state = 'failed' OR ({lapsed}))
    AND record.payload IS NOT NULL
    AND ({expired}) IS NOT TRUE
    AND {lock_timeout}
RETURNING record.key, record.scope, record.action, record.target, record.request_id

-- name: insert_audit_entry
-- Write an entry of the audit trail, in the transaction of the act that it describes.
-- Arguments: by, reason, act, outcome, id, key, scope, action, target, request_id
-- Columns: entry, its number
INSERT INTO retrysafe_audit (at, by, reason, act, outcome, id, key, scope, action, target, request_id)
VALUES (
    {now}, CAST(:by AS text), CAST(:reason AS text), CAST(:act AS text), CAST(:outcome AS text),
    CAST(:id AS bytea), CAST(:key AS text), CAST(:scope AS text), CAST(:action AS text),
    CAST(:target AS text), CAST(:request_id AS text)
)
RETURNING entry

-- name: update_audit_entry
-- Bring an entry of the audit trail up to date, for an act of several steps.
-- Arguments: entry, outcome
-- Columns: 1
--
-- In the transaction of each step, so that the entry is true whenever the act breaks off.
UPDATE retrysafe_audit SET outcome = CAST(:outcome AS text)
WHERE entry = CAST(:entry AS bigint)
RETURNING 1

-- name: list_audit_entries
-- What operators did, the latest first; to records with ids from low to high, if these are given.
-- Arguments: low, high, limit
-- Columns: at, by, reason, act, outcome, id, key, scope, action, target, request_id
SELECT date_part('epoch', at), by, reason, act, outcome, id, key, scope, action, target, request_id
FROM retrysafe_audit
WHERE CAST(:low AS bytea) IS NULL OR id BETWEEN CAST(:low AS bytea) AND CAST(:high AS bytea)
ORDER BY entry DESC
LIMIT CAST(:limit AS bigint)

-- name: rights_on_routes
-- What this role may do with `retrysafe_routes`.
-- Columns: whether it may read it, whether it may add to it; no row when there is no such table
SELECT may_read, may_read AND may_insert AND may_update
FROM (
    SELECT
        has_table_privilege(oid, 'SELECT') AS may_read,
        has_table_privilege(oid, 'INSERT') AS may_insert,
        has_table_privilege(oid, 'UPDATE') AS may_update
    FROM pg_class
    WHERE oid = to_regclass('retrysafe_routes')
) AS rights

-- name: verdicts
-- How calls ended, as the services counted: those that count by route, and those that do not.
-- Columns: verdict, count, since
SELECT verdict, CAST(sum(count) AS bigint), date_part('epoch', min(since))
FROM (
    SELECT verdict, count, since FROM retrysafe_verdicts
    UNION ALL
    SELECT verdict, count, since FROM retrysafe_routes
) AS counted
GROUP BY verdict
ORDER BY sum(count) DESC, verdict

-- name: verdicts_without_routes
-- As `verdicts`, where `retrysafe_routes` is missing or may not be read.
-- Columns: verdict, count, since
SELECT verdict, count, date_part('epoch', since)
FROM retrysafe_verdicts
ORDER BY count DESC, verdict

-- name: calls_by_route
-- How the calls of those routes ended that have the most calls without a key, and then the most calls.
-- Arguments: groups
-- Columns: door, route, source, verdict, count, since, when the last of them was counted
SELECT door, route, source, verdict, count, date_part('epoch', since), date_part('epoch', seen_at)
FROM retrysafe_routes
JOIN (
    SELECT door, route, source
    FROM retrysafe_routes
    GROUP BY door, route, source
    ORDER BY sum(CASE WHEN {without_key} THEN count ELSE 0 END) DESC, sum(count) DESC, door, route, source
    LIMIT CAST(:groups AS bigint)
) AS largest USING (door, route, source)

-- name: add_calls
-- Add to the numbers of calls that ended with each verdict, by route.
-- Arguments: calls, patience
--
-- One JSON text, [[door, route, source, verdict, number], ...].  Atomic as one statement, so that the counts of
-- several processes add up; always in the same order, so that two of them do not wait for each other.
INSERT INTO retrysafe_routes AS total (door, route, source, verdict, count, since, seen_at)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, CAST(value ->> 4 AS bigint), {now}, {now}
FROM json_array_elements(CAST(:calls AS json)) AS added (value)
WHERE {lock_timeout}
ORDER BY 1, 2, 3, 4
ON CONFLICT (door, route, source, verdict) DO UPDATE SET
    count = total.count + excluded.count,
    seen_at = greatest(total.seen_at, excluded.seen_at)

-- name: add_verdicts
-- As `add_calls`, where `retrysafe_routes` is missing or may not be written: by verdict alone.
-- Arguments: verdicts, patience
--
-- Verdicts are one JSON text, a number for each name.  Atomic as one statement, so that the counts of several
-- processes add up; always in the order of names, so that two of them do not wait for each other.
INSERT INTO retrysafe_verdicts AS total (verdict, count, since)
SELECT added.key, CAST(added.value AS bigint), {now}
FROM json_each_text(CAST(:verdicts AS json)) AS added
WHERE {lock_timeout}
ORDER BY added.key
ON CONFLICT (verdict) DO UPDATE SET count = total.count + excluded.count
