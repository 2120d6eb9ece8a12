-- Parts of statements: a name in braces, as in {expired}, stands for the text below it.  What must mean the same
-- everywhere is written once.  Their arguments are arguments of the statements that use them.

-- name: columns
-- The columns of a record in the order in which codec.decode reads them; the response's four follow.
version, id, token, fingerprint, state, mode, attempt, lease_until, checkpointed,
door, scope, key, action, target, request_id, correlation_id,
created_at, updated_at, completed_at, expires_at, held_until,
details, retention_from, deliveries, seen_at, delivery_times

-- name: expired
-- True for a record that has expired: past its expiry, and not in progress, or in progress with lease and hold
-- both over.  A missing lease lasts as long as the record.  One whose payload is due at any time does not expire: it was
-- acknowledged, and must not be lost because no worker ran.
-- Arguments: now
--
-- It is never true for a damaged row.  What is NULL compares as unknown and text or bytes compare as greater
-- than any number, so such a time has not passed; a state or version that is not known is not judged.  For
-- the opposite write `({expired}) IS NOT TRUE`, because NOT unknown is unknown, and would hide the row.
version = 1
AND expires_at <= :now
AND due_at IS NULL
AND (
    state IN ('completed', 'failed')
    OR (state = 'in_progress' AND held_until <= :now AND coalesce(lease_until, expires_at) <= :now)
)

-- name: lapsed
-- True for a record in progress whose lease has ended: its owner died, or lost the store.
-- Arguments: now
--
-- A missing lease lasts as long as the record, as in `take_over`, so the lease of a held record ends then too.
state = 'in_progress' AND coalesce(lease_until, expires_at) <= :now

-- name: abandoned
-- True for a record whose lease has ended, and which no worker is to handle: it waits for an operator.
-- Arguments: now
{lapsed} AND due_at IS NULL

-- name: waiting
-- True for a record whose payload a worker is to handle, for the first time or again.
-- Arguments: now
due_at IS NOT NULL AND (state = 'failed' OR ({lapsed}))

-- name: effective_state
-- The state of a record, or `expired`, `abandoned` or `waiting`, which are not stored; of a damaged one, whatever is
-- in its state.
-- Arguments: now
CASE WHEN {expired} THEN 'expired' WHEN {abandoned} THEN 'abandoned' WHEN {waiting} THEN 'waiting' ELSE state END

-- name: claim_rows
-- The claims of a batch as a table: id, token, lease.
-- Arguments: claims
--
-- They come as one JSON text, [[id, token, lease, announced], ...] with bytes in hexadecimal.  SQLite before 3.41
-- has no unhex(), so connection.py gives it one.
SELECT
    unhex(json_extract(value, '$[0]')) AS id,
    unhex(json_extract(value, '$[1]')) AS token,
    json_extract(value, '$[2]') AS lease
FROM json_each(:claims)

-- name: listing_columns
-- The columns of a record for an operator, then its effective state, the size of its body, now, the size of its payload,
-- and when that is due.
-- Arguments: bodies, now
--
-- Without bodies each is empty, and not read: its length is known without it.  One that is missing or is not
-- bytes stays so, because it is damage that is to be reported.
{columns}, status, headers,
CASE WHEN :bodies THEN body WHEN typeof(body) = 'blob' THEN x'' WHEN typeof(body) = 'text' THEN '' ELSE body
END, omitted, {effective_state}, coalesce(length(body), 0), :now, length(payload), due_at

-- name: listing_order
-- What an operator has to look at: the abandoned, the oldest of them first; then the youngest.
-- Arguments: now
ORDER BY ({abandoned}) DESC, CASE WHEN {abandoned} THEN created_at ELSE -created_at END

-- name: matches_query
-- True for a record that an operator asks for and that has not expired.
-- Arguments: states, door, scope, part, action, target, prefix, older, younger, key, request_id, now
--
-- An argument that is NULL excludes nothing.  States and scope are JSON arrays, the scope's of parts as
-- the scope column has them.  A scope that is not JSON has no parts, and does not make the statement fail for
-- all.  `part` is the text of one of them, so that most rows need not be taken apart.
({expired}) IS NOT TRUE
AND (:states IS NULL OR {effective_state} IN (SELECT value FROM json_each(:states)))
AND (:door IS NULL OR door = :door)
AND (:action IS NULL OR action = :action)
AND (:target IS NULL OR target = :target)
AND (:prefix IS NULL OR substr(target, 1, length(:prefix)) = :prefix)
AND (:older IS NULL OR created_at <= :now - :older)
AND (:younger IS NULL OR created_at >= :now - :younger)
AND (:key IS NULL OR key = :key)
AND (:request_id IS NULL OR request_id = :request_id)
AND (
    :scope IS NULL
    OR (
        instr(scope, :part) > 0
        AND NOT EXISTS (
            SELECT 1 FROM json_each(:scope) AS wanted
            WHERE wanted.value NOT IN (
                SELECT value FROM json_each(CASE WHEN json_valid(scope) THEN scope ELSE '[]' END)
            )
        )
    )
)

-- name: record_summaries
-- Every record as statistics need it; its effective state is a number, because it is compared often:
-- 1 abandoned, 2 waiting, 3 in_progress, 4 completed, 5 failed, 6 expired, 0 in an unknown state.
-- Arguments: now
--
-- LIMIT -1 excludes nothing, but keeps SQLite from merging this with the query around it, which would carry
-- whole bodies through a sort and judge each record once for every column of the result.
SELECT
    door, action, CASE door WHEN 'request' THEN target ELSE '' END AS route_target, scope, created_at,
    completed_at, deliveries, due_at, coalesce(length(body), 0) AS size,
    CASE
        WHEN {expired} THEN 6
        WHEN {abandoned} THEN 1
        WHEN {waiting} THEN 2
        WHEN state = 'in_progress' THEN 3
        WHEN state = 'completed' THEN 4
        WHEN state = 'failed' THEN 5
        ELSE 0
    END AS state_number
FROM retrysafe_records
LIMIT -1

-- name: group_counts
-- Of a group of {record_summaries}: the records in each of the five states, and the bytes of their bodies.
sum(state_number = 1), sum(state_number = 2), sum(state_number = 3), sum(state_number = 4), sum(state_number = 5),
sum(size)

-- name: without_key
-- True of a verdict of calls without a key: they were served, or refused because a key is required.
verdict IN ('keyless', 'key-missing')
