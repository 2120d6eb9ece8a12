-- Leases: what the lease keeper of a process does for the attempts that run in it, many with one statement.
--
-- Atomic and fenced: each row is changed or removed on its own condition, all in one statement and one commit.

-- name: renew
-- Extend the leases of running records, ended or not: an attempt that was not taken over may go on.
-- Arguments: claims, now
-- Columns: id and token of each claim that was renewed; not of those that are fenced, or finished
UPDATE retrysafe_records AS record SET lease_until = :now + claim.lease
FROM ({claim_rows}) AS claim
WHERE record.id = claim.id AND record.token = claim.token AND record.state = 'in_progress'
RETURNING id, token

-- name: settled
-- Which of these attempts were not lost: they have finished, and need no lease any more.
-- Arguments: claims
-- Columns: id and token of each such claim
SELECT record.id, record.token
FROM ({claim_rows}) AS claim
JOIN retrysafe_records AS record ON record.id = claim.id
WHERE record.token = claim.token AND record.state IN ('completed', 'failed')

-- name: release_all
-- Delete running records, whose attempts were given up.
-- Arguments: claims
-- Columns: 1 for each that was released
DELETE FROM retrysafe_records
WHERE state = 'in_progress'
    AND (id, token) IN (SELECT claim.id, claim.token FROM ({claim_rows}) AS claim)
RETURNING 1

-- name: add_deliveries
-- Add to how often records were asked for, and when.
-- Arguments: deliveries, now
--
-- One JSON text, [[id, number, [ago, ...]], ...]: the id in hexadecimal, how many deliveries there were, and how
-- many seconds ago the last of them, the oldest first.  Atomic as one statement, so that the counts of several
-- processes add up.  Not an update in the sense of the record: neither `updated_at` nor the expiry moves.
UPDATE retrysafe_records SET
    deliveries = deliveries + asked.number,
    seen_at = max(coalesce(seen_at, 0.0), asked.at),
    delivery_times = substr(coalesce(delivery_times, '') || asked.times, -300)
FROM (
    SELECT
        unhex(json_extract(row.value, '$[0]')) AS id,
        json_extract(row.value, '$[1]') AS number,
        :now - json_extract(row.value, '$[2][#-1]') AS at,
        (
            SELECT group_concat(time, '')
            FROM (
                SELECT printf('%014.3f ', :now - ago.value) AS time
                FROM json_each(row.value, '$[2]') AS ago
                ORDER BY ago.key
            )
        ) AS times
    FROM json_each(:deliveries) AS row
) AS asked
WHERE retrysafe_records.id = asked.id

-- name: claim_cleanup
-- Take the next round of cleanup, if it is due: other processes leave it alone for `turn` seconds.
-- Arguments: turn, longest, now
-- Columns: 1 if it is the caller's; no row if it is not due
--
-- Atomic as one conditional statement on one row, the time of the next round.  One that is due in more than
-- `longest` seconds is due now, or a clock that was wrong would end cleanup; text is later than any time.
INSERT INTO retrysafe_meta (name, value) VALUES ('cleanup', :now + :turn)
ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE value <= :now OR value > :now + :longest
RETURNING 1

-- name: postpone_cleanup
-- Set the time of the next round of cleanup.
-- Arguments: pause, now
UPDATE retrysafe_meta SET value = :now + :pause WHERE name = 'cleanup'
