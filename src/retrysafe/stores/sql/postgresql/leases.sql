-- Leases: what the lease keeper of a process does for the attempts that run in it, many with one statement.
--
-- Atomic and fenced: each row is changed or removed on its own condition, all in one statement and one commit.

-- name: renew
-- Extend the leases of running records, ended or not: an attempt that was not taken over may go on.
-- Arguments: claims, patience
-- Columns: id and token of each claim that was renewed; not of those that are fenced, or finished, or locked
--
-- A row that another transaction has locked is skipped and not waited for, or one would cost all others their
-- leases: it is being finished or taken over, or an operator looks at it, and it has its turn next time.
UPDATE retrysafe_records AS record
SET lease_until = {now} + due.lease * interval '1 second'
FROM (
    SELECT free.id, free.token, claim.lease
    FROM ({claim_rows}) AS claim
    JOIN retrysafe_records AS free ON free.id = claim.id
    WHERE free.token = claim.token AND free.state = 'in_progress' AND {lock_timeout}
    FOR NO KEY UPDATE OF free SKIP LOCKED
) AS due
WHERE record.id = due.id AND record.token = due.token AND record.state = 'in_progress'
RETURNING record.id, record.token

-- name: settled
-- Which of these attempts were not lost: they have finished and need no lease any more, or their rows were
-- locked by another transaction when the others' leases were renewed.
-- Arguments: claims
-- Columns: id and token of each such claim
--
-- A statement of its own, because it must see what was committed while the one before it ran.
SELECT record.id, record.token
FROM ({claim_rows}) AS claim
JOIN retrysafe_records AS record ON record.id = claim.id
WHERE record.token = claim.token

-- name: release_all
-- Delete running records, whose attempts were given up.
-- Arguments: claims, patience
-- Columns: 1 for each that was released, then nothing of interest
DELETE FROM retrysafe_records AS record
USING ({claim_rows}) AS claim
WHERE record.id = claim.id
    AND record.token = claim.token
    AND record.state = 'in_progress'
    AND {lock_timeout}
    AND {durable_commit}
RETURNING
    1,
    CASE WHEN claim.announced = 1 THEN CAST(pg_notify('retrysafe', encode(record.id, 'hex')) AS text) END

-- name: add_deliveries
-- Add to how often records were asked for, and when.
-- Arguments: deliveries, patience
--
-- One JSON text, [[id, number, [ago, ...]], ...]: the id in hexadecimal, how many deliveries there were, and how
-- many seconds ago the last of them, the oldest first.  Atomic as one statement, so that the counts of several
-- processes add up.  Not an update in the sense of the record: neither `updated_at` nor the expiry moves.
--
-- A row that another transaction has locked is skipped and not waited for: this is not worth it.
UPDATE retrysafe_records AS record SET
    deliveries = record.deliveries + asked.number,
    seen_at = greatest(record.seen_at, asked.at),
    delivery_times = right(coalesce(record.delivery_times, '') || asked.times, 300)
FROM (
    SELECT free.id, delivery.number, delivery.at, delivery.times
    FROM (
        SELECT
            decode(value ->> 0, 'hex') AS id,
            CAST(value ->> 1 AS integer) AS number,
            {now} - CAST(value -> 2 ->> -1 AS float8) * interval '1 second' AS at,
            (
                SELECT string_agg(
                    to_char(date_part('epoch', {now}) - CAST(ago AS float8), 'FM0000000000.000') || ' ',
                    '' ORDER BY place
                )
                FROM json_array_elements_text(value -> 2) WITH ORDINALITY AS each (ago, place)
            ) AS times
        FROM json_array_elements(CAST(:deliveries AS json)) AS element (value)
        WHERE json_array_length(value) = 3
    ) AS delivery
    JOIN retrysafe_records AS free ON free.id = delivery.id
    WHERE {lock_timeout}
    FOR NO KEY UPDATE OF free SKIP LOCKED
) AS asked
WHERE record.id = asked.id

-- name: claim_cleanup
-- Take the next round of cleanup, if it is due: other processes leave it alone for `turn` seconds.
-- Arguments: turn, longest, patience
-- Columns: 1 if it is the caller's; no row if it is not due, or another process has just taken it
--
-- Atomic as one conditional statement on one row, the time of the next round in seconds since the epoch.  Looked
-- at first, because a conflict locks the row, which costs a flush even if nothing is changed.
INSERT INTO retrysafe_meta AS meta (name, value)
SELECT 'cleanup', CAST(date_part('epoch', {now}) + CAST(:turn AS float8) AS text)
WHERE NOT EXISTS (SELECT 1 FROM retrysafe_meta AS meta WHERE meta.name = 'cleanup' AND NOT {cleanup_is_due})
    AND {lock_timeout}
ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE {cleanup_is_due}
RETURNING 1

-- name: postpone_cleanup
-- Set the time of the next round of cleanup.
-- Arguments: pause, patience
UPDATE retrysafe_meta AS meta
SET value = CAST(date_part('epoch', {now}) + CAST(:pause AS float8) AS text)
WHERE meta.name = 'cleanup' AND {lock_timeout}
