-- What operators ask and do, the audit trail, and how calls ended.
--
-- Lists and statistics scan the table, because an index for them would cost every request; except by id, by the
-- subject of a callback or an operation, by what is due, and by what an operator has asked for an index on.
-- An intervention and its audit entry are written in one transaction: there is neither without the other.

-- name: list_records
-- Records that an operator asks for.
-- Arguments: states, door, scope, part, action, target, prefix, older, younger, key, request_id, bodies, limit, now
-- Columns: those of a record, then effective state, size, now, size of the payload, when it is due
--
-- One statement, so one view.  Only what is shown is fetched whole, after the limit.
SELECT {listing_columns}
FROM retrysafe_records
WHERE rowid IN (
    SELECT rowid FROM retrysafe_records
    WHERE {matches_query}
    {listing_order}
    LIMIT :limit
)
{listing_order}

-- name: list_records_by_id
-- As `list_records`, among the ids from low to high.
-- Arguments: low, high, states, door, scope, part, action, target, prefix, older, younger, key, request_id, bodies, limit,
--            now
-- Columns: those of a record, then effective state, size, now, size of the payload, when it is due
--
-- One statement, so one view; a range of the primary key.
SELECT {listing_columns}
FROM retrysafe_records
WHERE id BETWEEN :low AND :high AND {matches_query}
{listing_order}
LIMIT :limit

-- name: list_records_by_request_id
-- As `list_records`, of one request.
-- Arguments: states, door, scope, part, action, target, prefix, older, younger, key, request_id, bodies, limit, now
-- Columns: those of a record, then effective state, size, now, size of the payload, when it is due
--
-- By the index on request ids, where an operator has made one.
SELECT {listing_columns}
FROM retrysafe_records
WHERE request_id = :request_id AND {matches_query}
{listing_order}
LIMIT :limit

-- name: list_records_by_subject
-- As `list_records`, of what callbacks and operations have to do with one subject.
-- Arguments: states, door, scope, part, action, target, prefix, older, younger, key, request_id, bodies, limit, now
-- Columns: those of a record, then effective state, size, now, size of the payload, when it is due
--
-- By the partial index on targets.
SELECT {listing_columns}
FROM retrysafe_records
WHERE door <> 'request' AND target = :target AND {matches_query}
{listing_order}
LIMIT :limit

-- name: list_records_by_scope
-- As `list_records`, of one scope or of a part of it.
-- Arguments: states, door, scope, part, action, target, prefix, older, younger, key, request_id, bodies, limit, now
-- Columns: those of a record, then effective state, size, now, size of the payload, when it is due
--
-- By the index on scopes, where an operator has made one: it is walked through instead of the table, and only
-- records of scopes with this part are looked at.
SELECT {listing_columns}
FROM retrysafe_records
WHERE rowid IN (
    SELECT rowid FROM retrysafe_records
    WHERE scope IN (SELECT scope FROM retrysafe_records WHERE instr(scope, :part) > 0) AND {matches_query}
    {listing_order}
    LIMIT :limit
)
{listing_order}

-- name: export_records
-- Records in the order of their ids, expired ones too.
-- Arguments: after, expiring, door, limit, now
-- Columns: those of a record
--
-- A range of the primary key.
SELECT {columns}, status, headers, body, omitted
FROM retrysafe_records
WHERE id > :after
    AND (:door IS NULL OR door = :door)
    AND (:expiring IS NULL OR expires_at <= :now + :expiring)
ORDER BY id
LIMIT :limit

-- name: totals
-- How many records there are.
-- Arguments: now
-- Columns: records abandoned, waiting, in_progress, completed, failed, and bytes of their bodies; records expired,
--          and in an unknown state; when the oldest in progress and the oldest abandoned were made, and since when
--          the oldest payload is due; now
--
-- It loads no body.
SELECT
    coalesce(sum(state_number = 1), 0),
    coalesce(sum(state_number = 2), 0),
    coalesce(sum(state_number = 3), 0),
    coalesce(sum(state_number = 4), 0),
    coalesce(sum(state_number = 5), 0),
    coalesce(sum(CASE WHEN state_number BETWEEN 1 AND 5 THEN size END), 0),
    coalesce(sum(state_number = 6), 0),
    coalesce(sum(state_number = 0), 0),
    min(CASE WHEN state_number = 3 THEN created_at END),
    min(CASE WHEN state_number = 1 THEN created_at END),
    min(CASE WHEN state_number = 2 THEN due_at END),
    :now
FROM ({record_summaries})

-- name: by_route
-- Methods and paths with the most records, the expired ones aside; of operations and callbacks the action alone,
-- because their target is an id.
-- Arguments: groups, now
-- Columns: action, target, then records abandoned, waiting, in_progress, completed, failed, and bytes of their bodies
--
-- It loads no body; SQLite sorts on disk what does not fit its cache.
SELECT action, route_target, {group_counts}
FROM ({record_summaries})
WHERE state_number BETWEEN 1 AND 5
GROUP BY action, route_target
ORDER BY count(*) DESC, action, route_target
LIMIT :groups

-- name: by_door
-- As `by_route`, of doors.
-- Arguments: now
-- Columns: door, then records abandoned, waiting, in_progress, completed, failed, and bytes of their bodies
SELECT door, {group_counts}
FROM ({record_summaries})
WHERE state_number BETWEEN 1 AND 5
GROUP BY door
ORDER BY count(*) DESC, door

-- name: by_scope
-- As `by_route`, of scopes.
-- Arguments: groups, now
-- Columns: scope, then records abandoned, waiting, in_progress, completed, failed, and bytes of their bodies
SELECT scope, {group_counts}
FROM ({record_summaries})
WHERE state_number BETWEEN 1 AND 5
GROUP BY scope
ORDER BY count(*) DESC, scope
LIMIT :groups

-- name: by_source
-- Sources of callbacks, those with the most events first.
-- Arguments: groups, now
-- Columns: action, events, deliveries, events handled, seconds from their first delivery to their completion: on
--          average, at most
--
-- It loads no body.
SELECT
    action,
    count(*),
    sum(deliveries),
    sum(state_number = 4),
    avg(CASE WHEN state_number = 4 THEN completed_at - created_at END),
    max(CASE WHEN state_number = 4 THEN completed_at - created_at END)
FROM ({record_summaries})
WHERE door = 'callback' AND state_number BETWEEN 1 AND 5
GROUP BY action
ORDER BY count(*) DESC, action
LIMIT :groups

-- name: count_expired
-- How many records a purge would remove.
-- Arguments: door, now
-- Columns: records
--
-- A range of the index on the expiry.
SELECT count(*) FROM retrysafe_records WHERE {expired} AND (:door IS NULL OR door = :door)

-- name: admin_release
-- Delete a record that is abandoned, or that was seen completed or failed, by an operator's decision.
-- Arguments: id, token, state, now
-- Columns: what the audit trail has of it: key, scope, action, target, request_id; no row when it is not as
--          it was seen
--
-- Atomic and fenced as one conditional statement on one row, by token and state: an owner that renewed or
-- finished meanwhile, and a successor, are left alone, and so is every lease that has not ended.  A
-- checkpointed record is not an exception: the operator knows what the client saw.
DELETE FROM retrysafe_records
WHERE id = :id
    AND token = :token
    AND version = 1
    AND state = :state
    AND (state IN ('completed', 'failed') OR ({lapsed}))
    AND ({expired}) IS NOT TRUE
RETURNING key, scope, action, target, request_id

-- name: admin_resolve
-- Settle a record that is abandoned, as an operator found out.
-- Arguments: id, token, fence, state, status, headers, body, omitted, now
-- Columns: what the audit trail has of it: key, scope, action, target, request_id; no row when it is not as
--          it was seen
--
-- Atomic and fenced as one conditional statement on one row, as `admin_release` is.  The new token `fence` shuts
-- out the owner, should it come back with an outcome of its own.  The record lasts for its whole retention from
-- now on: its client was told not to try again, and may come back much later; and a held record may be past its
-- expiry already.  No worker handles its payload any more.
UPDATE retrysafe_records SET
    token = :fence,
    state = :state,
    completed_at = :now,
    updated_at = :now,
    expires_at = :now
        + max(expires_at - CASE retention_from WHEN 'update' THEN updated_at ELSE created_at END, 0.0),
    status = :status,
    headers = :headers,
    body = :body,
    omitted = :omitted,
    due_at = NULL
WHERE id = :id AND token = :token AND version = 1 AND {lapsed} AND ({expired}) IS NOT TRUE
RETURNING key, scope, action, target, request_id

-- name: payload
-- What was delivered, where it is stored with the record of this id.
-- Arguments: id, now
-- Columns: payload, NULL if there is none; no row when there is no record
SELECT payload FROM retrysafe_records WHERE id = :id AND ({expired}) IS NOT TRUE

-- name: due
-- Deliveries that a worker may handle now, those first that could be handled first.
-- Arguments: action, limit, now
-- Columns: payload, then those of a record
--
-- By the partial index on what is due.  It locks nothing: a worker claims one by taking it over.
SELECT payload, {columns}, status, headers, body, omitted
FROM retrysafe_records
WHERE due_at IS NOT NULL
    AND due_at <= :now
    AND version = 1
    AND door = 'callback'
    AND action = :action
    AND payload IS NOT NULL
    AND {waiting}
ORDER BY due_at
LIMIT :limit

-- name: admin_redrive
-- Have a worker handle the payload of a record that was seen failed, abandoned or waiting, now.
-- Arguments: id, token, fence, state, status, headers, body, omitted, now
-- Columns: what the audit trail has of it: key, scope, action, target, request_id; no row when it is not as
--          it was seen, or has no payload
--
-- Atomic and fenced as one conditional statement on one row, as `admin_release` is.  The new token `fence` shuts
-- out an owner that was taken for dead.  One that had not failed has no outcome, and is given this one.
UPDATE retrysafe_records SET
    token = :fence,
    state = 'failed',
    completed_at = CASE state WHEN 'failed' THEN completed_at ELSE :now END,
    updated_at = :now,
    status = CASE state WHEN 'failed' THEN status ELSE :status END,
    headers = CASE state WHEN 'failed' THEN headers ELSE :headers END,
    body = CASE state WHEN 'failed' THEN body ELSE :body END,
    omitted = CASE state WHEN 'failed' THEN omitted ELSE :omitted END,
    due_at = :now
WHERE id = :id
    AND token = :token
    AND version = 1
    AND state = :state
    AND (state = 'failed' OR ({lapsed}))
    AND payload IS NOT NULL
    AND ({expired}) IS NOT TRUE
RETURNING key, scope, action, target, request_id

-- name: insert_audit_entry
-- Write an entry of the audit trail, in the transaction of the act that it describes.
-- Arguments: by, reason, act, outcome, id, key, scope, action, target, request_id, now
-- Columns: entry, its number
INSERT INTO retrysafe_audit (at, by, reason, act, outcome, id, key, scope, action, target, request_id)
VALUES (:now, :by, :reason, :act, :outcome, :id, :key, :scope, :action, :target, :request_id)
RETURNING entry

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
SELECT at, by, reason, act, outcome, id, key, scope, action, target, request_id
FROM retrysafe_audit
WHERE :low IS NULL OR id BETWEEN :low AND :high
ORDER BY entry DESC
LIMIT :limit

-- name: rights_on_routes
-- What may be done with `retrysafe_routes`.
-- Columns: whether it may be read, whether it may be added to; no row when there is no such table
SELECT 1, 1 FROM sqlite_master WHERE name = 'retrysafe_routes'

-- name: verdicts
-- How calls ended, as the services counted: those that count by route, and those that do not.
-- Columns: verdict, count, since
SELECT verdict, sum(count), min(since)
FROM (
    SELECT verdict, count, since FROM retrysafe_verdicts
    UNION ALL
    SELECT verdict, count, since FROM retrysafe_routes
)
GROUP BY verdict
ORDER BY sum(count) DESC, verdict

-- name: verdicts_without_routes
-- As `verdicts`, where `retrysafe_routes` is missing.
-- Columns: verdict, count, since
SELECT verdict, count, since FROM retrysafe_verdicts ORDER BY count DESC, verdict

-- name: calls_by_route
-- How the calls of those routes ended that have the most calls without a key, and then the most calls.
-- Arguments: groups
-- Columns: door, route, source, verdict, count, since, when the last of them was counted
SELECT door, route, source, verdict, count, since, seen_at
FROM retrysafe_routes
JOIN (
    SELECT door, route, source
    FROM retrysafe_routes
    GROUP BY door, route, source
    ORDER BY sum(CASE WHEN {without_key} THEN count ELSE 0 END) DESC, sum(count) DESC, door, route, source
    LIMIT :groups
) AS largest USING (door, route, source)

-- name: add_calls
-- Add to the numbers of calls that ended with each verdict, by route.
-- Arguments: calls, now
--
-- One JSON text, [[door, route, source, verdict, number], ...].  Atomic as one statement, so that the counts of
-- several processes add up.  The condition excludes nothing; without one, SQLite takes ON for a part of the join.
INSERT INTO retrysafe_routes (door, route, source, verdict, count, since, seen_at)
SELECT
    json_extract(value, '$[0]'),
    json_extract(value, '$[1]'),
    json_extract(value, '$[2]'),
    json_extract(value, '$[3]'),
    json_extract(value, '$[4]'),
    :now,
    :now
FROM json_each(:calls)
WHERE true
ON CONFLICT (door, route, source, verdict) DO UPDATE SET
    count = count + excluded.count,
    seen_at = max(seen_at, excluded.seen_at)

-- name: add_verdicts
-- As `add_calls`, where `retrysafe_routes` is missing: by verdict alone.
-- Arguments: verdicts, now
--
-- Verdicts are one JSON text, a number for each name.  Atomic as one statement, so that the counts of several
-- processes add up.  The condition excludes nothing; without one, SQLite takes ON for a part of the join.
INSERT INTO retrysafe_verdicts (verdict, count, since)
SELECT key, value, :now FROM json_each(:verdicts) WHERE true
ON CONFLICT (verdict) DO UPDATE SET count = count + excluded.count
