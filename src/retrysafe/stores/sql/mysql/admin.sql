-- What operators ask and do, the audit trail, and how calls ended.
--
-- Lists and statistics scan the table, because an index for them would cost every request; except by id, by what is
-- due, and by the request ids on which an operator has asked for an index.
-- An intervention and its audit entry are written in one transaction: there is neither without the other.

-- name: set_timeouts
-- From here on, a statement of this session takes no longer than so many seconds, and waits for a lock no longer than
-- `patience`.
-- Arguments: seconds, patience
--
-- MariaDB and MySQL have different names for it, in comments which the other one skips; MySQL's bounds reading alone.
SET SESSION
    innodb_lock_wait_timeout = CAST(GREATEST(:patience, 1) AS SIGNED),
    lock_wait_timeout = CAST(GREATEST(:patience, 1) AS SIGNED)
    /*M!100100 , max_statement_time = :seconds */
    /*!80000 , max_execution_time = CAST(:seconds * 1000 AS SIGNED) */

-- name: list_records
-- Records that an operator asks for.
-- Arguments: states, door, parts, action, target, prefix, older, younger, key, request_id, bodies, limit
-- Columns: those of a record, then effective state, size, now, size of the payload, when it is due
--
-- One statement, so one view.  Only what is shown is fetched whole, after the limit.
SELECT {listing_columns}
FROM retrysafe_records AS record
JOIN (
    SELECT record.id FROM retrysafe_records AS record
    WHERE {matches_query}
    {listing_order}
    LIMIT :limit
) AS chosen ON chosen.id = record.id
{listing_order}

-- name: list_records_by_id
-- As `list_records`, among the ids from low to high.
-- Arguments: low, high, states, door, parts, action, target, prefix, older, younger, key, request_id, bodies, limit
-- Columns: those of a record, then effective state, size, now, size of the payload, when it is due
--
-- One statement, so one view; a range of the primary key.
SELECT {listing_columns}
FROM retrysafe_records AS record
WHERE record.id BETWEEN :low AND :high AND {matches_query}
{listing_order}
LIMIT :limit

-- name: list_records_by_request_id
-- As `list_records`, of one request.
-- Arguments: states, door, parts, action, target, prefix, older, younger, key, request_id, bodies, limit
-- Columns: those of a record, then effective state, size, now, size of the payload, when it is due
--
-- By the index on request ids, where an operator has made one.
SELECT {listing_columns}
FROM retrysafe_records AS record
WHERE record.request_id = :request_id AND {matches_query}
{listing_order}
LIMIT :limit

-- name: list_records_by_subject
-- As `list_records`, of what callbacks and operations have to do with one subject.
-- Arguments: states, door, parts, action, target, prefix, older, younger, key, request_id, bodies, limit
-- Columns: those of a record, then effective state, size, now, size of the payload, when it is due
--
-- It scans the table: there are no partial indexes here, and one on every target would cost every request.
{list_records}

-- name: list_records_by_scope
-- As `list_records`, of one scope or of a part of it.
-- Arguments: states, door, parts, action, target, prefix, older, younger, key, request_id, bodies, limit
-- Columns: those of a record, then effective state, size, now, size of the payload, when it is due
--
-- It scans the table: MySQL and MariaDB have no kind of index in common that finds a part of a text.
{list_records}

-- name: part_of_scope
-- True for a record whose scope has this part, a pair of texts as the scope column has it.
-- Arguments: part
--
-- JSON is not parsed: a scope that is not JSON would make the statement fail for all.
INSTR(CAST(record.scope AS BINARY), CAST(:part AS BINARY)) > 0

-- name: export_records
-- Records in the order of their ids, expired ones too.
-- Arguments: after, expiring, door, limit
-- Columns: those of a record
--
-- A range of the primary key.
SELECT record.id, {document}, record.body
FROM retrysafe_records AS record
WHERE record.id > :after
    AND (:door IS NULL OR record.door = :door)
    AND (
        :expiring IS NULL
        OR record.expires_at <= {now} + INTERVAL CAST(:expiring * 1000000 AS SIGNED) MICROSECOND
    )
ORDER BY record.id
LIMIT :limit

-- name: totals
-- How many records there are.
-- Columns: records abandoned, waiting, in_progress, completed, failed, and bytes of their bodies; records expired,
--          and in an unknown state; when the oldest in progress and the oldest abandoned were made, and since when
--          the oldest payload is due; now
--
-- It loads no body.
SELECT
    CAST(COALESCE(SUM(state_number = 1), 0) AS SIGNED),
    CAST(COALESCE(SUM(state_number = 2), 0) AS SIGNED),
    CAST(COALESCE(SUM(state_number = 3), 0) AS SIGNED),
    CAST(COALESCE(SUM(state_number = 4), 0) AS SIGNED),
    CAST(COALESCE(SUM(state_number = 5), 0) AS SIGNED),
    CAST(COALESCE(SUM(CASE WHEN state_number BETWEEN 1 AND 5 THEN size END), 0) AS SIGNED),
    CAST(COALESCE(SUM(state_number = 6), 0) AS SIGNED),
    CAST(COALESCE(SUM(state_number = 0), 0) AS SIGNED),
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', MIN(CASE WHEN state_number = 3 THEN created_at END)) / 1e6,
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', MIN(CASE WHEN state_number = 1 THEN created_at END)) / 1e6,
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', MIN(CASE WHEN state_number = 2 THEN due_at END)) / 1e6,
    {now_in_seconds}
FROM ({record_summaries}) AS summary

-- name: by_route
-- Methods and paths with the most records, the expired ones aside; of operations and callbacks the action alone,
-- because their target is an id.
-- Arguments: groups
-- Columns: action, target, then records abandoned, waiting, in_progress, completed, failed, and bytes of their bodies
--
-- It loads no body.
SELECT action, route_target, {group_counts}
FROM ({record_summaries}) AS summary
WHERE state_number BETWEEN 1 AND 5
GROUP BY action, route_target
ORDER BY COUNT(*) DESC, action, route_target
LIMIT :groups

-- name: by_door
-- As `by_route`, of doors.
-- Columns: door, then records abandoned, waiting, in_progress, completed, failed, and bytes of their bodies
SELECT door, {group_counts}
FROM ({record_summaries}) AS summary
WHERE state_number BETWEEN 1 AND 5
GROUP BY door
ORDER BY COUNT(*) DESC, door

-- name: by_scope
-- As `by_route`, of scopes.
-- Arguments: groups
-- Columns: scope, then records abandoned, waiting, in_progress, completed, failed, and bytes of their bodies
SELECT scope, {group_counts}
FROM ({record_summaries}) AS summary
WHERE state_number BETWEEN 1 AND 5
GROUP BY scope
ORDER BY COUNT(*) DESC, scope
LIMIT :groups

-- name: by_source
-- Sources of callbacks, those with the most events first.
-- Arguments: groups
-- Columns: action, events, deliveries, events handled, seconds from their first delivery to their completion: on
--          average, at most
--
-- It loads no body.
SELECT
    action,
    COUNT(*),
    CAST(SUM(deliveries) AS SIGNED),
    CAST(SUM(state_number = 4) AS SIGNED),
    AVG(CASE WHEN state_number = 4 THEN TIMESTAMPDIFF(MICROSECOND, created_at, completed_at) / 1e6 END),
    MAX(CASE WHEN state_number = 4 THEN TIMESTAMPDIFF(MICROSECOND, created_at, completed_at) / 1e6 END)
FROM ({record_summaries}) AS summary
WHERE door = 'callback' AND state_number BETWEEN 1 AND 5
GROUP BY action
ORDER BY COUNT(*) DESC, action
LIMIT :groups

-- name: count_expired
-- How many records a purge would remove.
-- Arguments: door
-- Columns: records
--
-- A range of the index on the expiry.
SELECT COUNT(*) FROM retrysafe_records AS record
WHERE {expired} AND (:door IS NULL OR record.door = :door)

-- name: admin_release
-- Delete a record that is abandoned, or that was seen completed or failed, by an operator's decision.
-- Arguments: id, token, state
-- Columns: what the audit trail has of it: key, scope, action, target, request_id; no row when it is not as
--          it was seen
--
-- Atomic and fenced as one conditional statement on one row, by token and state: an owner that renewed or
-- finished meanwhile, and a successor, are left alone, and so is every lease that has not ended.  If another
-- transaction has locked the row it waits, and then judges what that one has left.  A checkpointed record is not
-- an exception: the operator knows what the client saw.
UPDATE retrysafe_records AS record SET token = x'00'
WHERE record.id = :id
    AND record.token = :token
    AND record.version = 1
    AND record.state = :state
    AND (record.state IN ('completed', 'failed') OR ({lapsed}))
    AND ({expired}) IS NOT TRUE;
SELECT record.`key`, record.scope, record.action, record.target, record.request_id
FROM retrysafe_records AS record
WHERE record.id = :id AND record.token = x'00';
DELETE FROM retrysafe_records WHERE id = :id AND token = x'00'

-- name: admin_resolve
-- Settle a record that is abandoned, as an operator found out.
-- Arguments: id, token, fence, state, status, headers, body, omitted
-- Columns: what the audit trail has of it: key, scope, action, target, request_id; no row when it is not as
--          it was seen
--
-- Atomic and fenced as one conditional statement on one row, as `admin_release` is.  The new token `fence` shuts
-- out the owner, should it come back with an outcome of its own.  The record lasts for its whole retention from
-- now on: its client was told not to try again, and may come back much later; and a held record may be past its
-- expiry already.  No worker handles its payload any more.  Assignments are made one after the other, so the times
-- that the expiry is computed from come after it.
UPDATE retrysafe_records AS record SET
    token = :fence,
    state = :state,
    expires_at = {now} + INTERVAL GREATEST(
        TIMESTAMPDIFF(
            MICROSECOND,
            CASE record.retention_from WHEN 'update' THEN record.updated_at ELSE record.created_at END,
            record.expires_at
        ),
        0
    ) MICROSECOND,
    completed_at = {now},
    updated_at = {now},
    status = :status,
    headers = :headers,
    body = :body,
    omitted = :omitted,
    due_at = NULL
WHERE record.id = :id
    AND record.token = :token
    AND record.version = 1
    AND {lapsed}
    AND ({expired}) IS NOT TRUE;
{audited}

-- name: payload
-- What was delivered, where it is stored with the record of this id.
-- Arguments: id
-- Columns: payload, NULL if there is none; no row when there is no record
SELECT record.payload FROM retrysafe_records AS record
WHERE record.id = :id AND ({expired}) IS NOT TRUE

-- name: due
-- Deliveries that a worker may handle now, those first that could be handled first.
-- Arguments: action, limit
-- Columns: payload, then those of a record
--
-- By the index on what is due.  It locks nothing: a worker claims one by taking it over.
SELECT record.payload, record.id, {document}, record.body
FROM retrysafe_records AS record
WHERE record.due_at <= {now}
    AND record.version = 1
    AND record.door = 'callback'
    AND CAST(record.action AS BINARY) = CAST(:action AS BINARY)
    AND record.payload IS NOT NULL
    AND {waiting}
ORDER BY record.due_at
LIMIT :limit

-- name: admin_redrive
-- Have a worker handle the payload of a record that was seen failed, abandoned or waiting, now.
-- Arguments: id, token, fence, state, status, headers, body, omitted
-- Columns: what the audit trail has of it: key, scope, action, target, request_id; no row when it is not as
--          it was seen, or has no payload
--
-- Atomic and fenced as one conditional statement on one row, as `admin_release` is.  The new token `fence` shuts
-- out an owner that was taken for dead.  One that had not failed has no outcome, and is given this one.  Assignments
-- are made one after the other, so the state comes last.
UPDATE retrysafe_records AS record SET
    token = :fence,
    completed_at = CASE record.state WHEN 'failed' THEN record.completed_at ELSE {now} END,
    updated_at = {now},
    status = CASE record.state WHEN 'failed' THEN record.status ELSE :status END,
    headers = CASE record.state WHEN 'failed' THEN record.headers ELSE :headers END,
    body = CASE record.state WHEN 'failed' THEN record.body ELSE :body END,
    omitted = CASE record.state WHEN 'failed' THEN record.omitted ELSE :omitted END,
    due_at = {now},
    state = 'failed'
WHERE record.id = :id
    AND record.token = :token
    AND record.version = 1
    AND record.state = :state
    AND (record.state = 'failed' OR ({lapsed}))
    AND record.payload IS NOT NULL
    AND ({expired}) IS NOT TRUE;
{audited}

-- name: insert_audit_entry
-- Write an entry of the audit trail, in the transaction of the act that it describes.
-- Arguments: by, reason, act, outcome, id, key, scope, action, target, request_id
-- Columns: entry, its number
INSERT INTO retrysafe_audit (at, `by`, reason, act, outcome, id, `key`, scope, action, target, request_id)
VALUES (
    {now}, :by, :reason, :act, :outcome, :id, :key, :scope, :action, :target, :request_id
);
SELECT CAST(LAST_INSERT_ID() AS SIGNED)

-- name: update_audit_entry
-- Bring an entry of the audit trail up to date, for an act of several steps.
-- Arguments: entry, outcome
--
-- In the transaction of each step, so that the entry is true whenever the act breaks off.
UPDATE retrysafe_audit SET outcome = :outcome WHERE entry = :entry

-- name: list_audit_entries
-- What operators did, the latest first; to records with ids from low to high, if these are given.
-- Arguments: low, high, limit
-- Columns: at, by, reason, act, outcome, id, key, scope, action, target, request_id
SELECT
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', at) / 1e6, `by`, reason, act, outcome, id, `key`, scope, action,
    target, request_id
FROM retrysafe_audit
WHERE :low IS NULL OR id BETWEEN :low AND :high
ORDER BY entry DESC
LIMIT :limit

-- name: rights_on_routes
-- What this user may do with `retrysafe_routes`.
-- Columns: whether it may read it, whether it may add to it; no row when there is no such table
--
-- information_schema shows a table and its columns to those who have any right on them, and in PRIVILEGES those that
-- they have.
SELECT
    CAST(MAX(FIND_IN_SET('select', LOWER(COALESCE(PRIVILEGES, ''))) > 0) AS SIGNED),
    CAST(MAX(
        FIND_IN_SET('select', LOWER(PRIVILEGES)) > 0
        AND FIND_IN_SET('insert', LOWER(PRIVILEGES)) > 0
        AND FIND_IN_SET('update', LOWER(PRIVILEGES)) > 0
    ) AS SIGNED)
FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA = DATABASE() AND LOWER(TABLE_NAME) = 'retrysafe_routes' AND LOWER(COLUMN_NAME) = 'count'
GROUP BY COLUMN_NAME

-- name: verdicts
-- How calls ended, as the services counted: those that count by route, and those that do not.
-- Columns: verdict, count, since
SELECT verdict, CAST(SUM(count) AS SIGNED), TIMESTAMPDIFF(MICROSECOND, '1970-01-01', MIN(since)) / 1e6
FROM (
    SELECT verdict, count, since FROM retrysafe_verdicts
    UNION ALL
    SELECT verdict, count, since FROM retrysafe_routes
) AS counted
GROUP BY verdict
ORDER BY SUM(count) DESC, verdict

-- name: verdicts_without_routes
-- As `verdicts`, where `retrysafe_routes` is missing or may not be read.
-- Columns: verdict, count, since
SELECT verdict, count, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', since) / 1e6
FROM retrysafe_verdicts
ORDER BY count DESC, verdict

-- name: calls_by_route
-- How the calls of those routes ended that have the most calls without a key, and then the most calls.
-- Arguments: groups
-- Columns: door, route, source, verdict, count, since, when the last of them was counted
SELECT
    door, route, source, verdict, count, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', since) / 1e6,
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', seen_at) / 1e6
FROM retrysafe_routes
JOIN (
    SELECT door, route, source
    FROM retrysafe_routes
    GROUP BY door, route, source
    ORDER BY SUM(CASE WHEN {without_key} THEN count ELSE 0 END) DESC, SUM(count) DESC, door, route, source
    LIMIT :groups
) AS largest USING (door, route, source)

-- name: add_calls
-- Add to the numbers of calls that ended with each verdict, by route.
-- Arguments: rows, door, route, source, verdict
--
-- They are a table with those columns that differ.  Atomic as one statement, so that the counts of several processes
-- add up; always in the same order, so that two of them do not wait for each other.
INSERT INTO retrysafe_routes (door, route, source, verdict, count, since, seen_at)
SELECT :door, :route, :source, :verdict, `each`.number, {now}, {now}
FROM (:rows) AS `each`
ON DUPLICATE KEY UPDATE
    count = retrysafe_routes.count + `each`.number,
    seen_at = GREATEST(retrysafe_routes.seen_at, {now})

-- name: add_verdicts
-- As `add_calls`, where `retrysafe_routes` is missing or may not be written: by verdict alone.
-- Arguments: rows, verdict
INSERT INTO retrysafe_verdicts (verdict, count, since)
SELECT :verdict, `each`.number, {now}
FROM (:rows) AS `each`
ON DUPLICATE KEY UPDATE count = retrysafe_verdicts.count + `each`.number
