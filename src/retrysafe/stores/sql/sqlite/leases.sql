-- Leases: what the lease keeper of a process does for the attempts that run in it.

-- name: renew
-- Extend the lease of a running record, ended or not: an attempt that was not taken over may go on.
-- Arguments: id, token, lease, now
-- Columns: 1; no row when fenced, or finished
--
-- Atomic and fenced as one conditional statement on one row.
UPDATE retrysafe_records SET lease_until = :now + :lease
WHERE id = :id AND token = :token AND state = 'in_progress'
RETURNING 1

-- name: settled
-- Whether the attempt with this token has finished: it needs no lease any more, and was not lost.
-- Arguments: id, token
-- Columns: 1; no row when not
SELECT 1 FROM retrysafe_records
WHERE id = :id AND token = :token AND state IN ('completed', 'failed')

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
