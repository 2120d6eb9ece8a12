-- Leases: what the lease keeper of a process does for the attempts that run in it.
--
-- Atomic and fenced: rows are found and locked first, and changed in the same transaction.  Those that another
-- transaction has locked are skipped and not waited for.

-- name: renew
-- Find and lock running records whose leases are to be extended, ended or not: an attempt that was not taken over may
-- go on.  `renew_found` extends them.
-- Arguments: ids, pairs
-- Columns: id and token of each claim that will be renewed; not of those that are fenced, or finished, or locked
--
-- A row that another transaction has locked is being finished or taken over, or an operator looks at it, and it has
-- its turn next time: to wait for it would cost all others their leases.
SELECT record.id, record.token FROM retrysafe_records AS record FORCE INDEX (PRIMARY)
WHERE record.id IN (:ids) AND (record.id, record.token) IN (:pairs) AND record.state = 'in_progress'
FOR UPDATE SKIP LOCKED

-- name: renew_found
-- Extend the leases of records that this transaction has found and locked.
-- Arguments: ids, lease
UPDATE retrysafe_records AS record FORCE INDEX (PRIMARY) SET record.lease_until = {lease_from_now}
WHERE record.id IN (:ids)

-- name: settled
-- Which of these attempts were not lost: they have finished and need no lease any more, or their rows were
-- locked by another transaction when the others' leases were renewed.
-- Arguments: ids, pairs
-- Columns: id and token of each such claim
--
-- A call of its own, because it must see what was committed while the one before it ran.
SELECT record.id, record.token FROM retrysafe_records AS record FORCE INDEX (PRIMARY)
WHERE record.id IN (:ids) AND (record.id, record.token) IN (:pairs)

-- name: release_all
-- Delete running records, whose attempts were given up.
-- Arguments: ids, pairs
-- Columns: id of each that was released
SELECT record.id FROM retrysafe_records AS record FORCE INDEX (PRIMARY)
WHERE record.id IN (:ids) AND (record.id, record.token) IN (:pairs) AND record.state = 'in_progress'
FOR UPDATE;
DELETE record FROM retrysafe_records AS record FORCE INDEX (PRIMARY)
WHERE record.id IN (:ids) AND (record.id, record.token) IN (:pairs) AND record.state = 'in_progress'

-- name: add_deliveries
-- Find and lock records that were asked for again.  `add_delivery` adds to each.
-- Arguments: ids
-- Columns: id
--
-- A row that another transaction has locked is skipped and not waited for: this is not worth it.
SELECT record.id FROM retrysafe_records AS record FORCE INDEX (PRIMARY)
WHERE record.id IN (:ids)
FOR UPDATE SKIP LOCKED

-- name: add_delivery
-- Add to how often a record was asked for, and when, the last time so many seconds `ago`.
-- Arguments: id, number, ago, times
--
-- `times` are `delivery_time` of each of them, the oldest first.  Not an update in the sense of the record: neither
-- `updated_at` nor the expiry moves.
UPDATE retrysafe_records AS record SET
    deliveries = record.deliveries + :number,
    seen_at = GREATEST(
        COALESCE(record.seen_at, '1970-01-01'), {now} - INTERVAL CAST(:ago * 1000000 AS SIGNED) MICROSECOND
    ),
    delivery_times = RIGHT(CONCAT(COALESCE(record.delivery_times, ''), :times), 300)
WHERE record.id = :id

-- name: delivery_time
-- A time so many seconds ago, as `delivery_times` has it.
-- Arguments: ago
LPAD(CAST(CAST({now_in_seconds} - :ago AS DECIMAL(20, 3)) AS CHAR), 14, '0'), ' '

-- name: claim_cleanup
-- Find and lock the time of the next round of cleanup, if it is due.  `cleanup_claimed` moves it on.
-- Arguments: longest
-- Columns: 1 if it is the caller's; no row if it is not due, or another process takes it in this moment
--
-- The row has the time in seconds since the epoch.  It is looked at before it is inserted, because an insert that
-- changes nothing locks all the same.
INSERT INTO retrysafe_meta (name, value)
SELECT 'cleanup', '0' FROM DUAL
WHERE NOT EXISTS (SELECT 1 FROM retrysafe_meta AS meta WHERE meta.name = 'cleanup')
ON DUPLICATE KEY UPDATE name = retrysafe_meta.name;
SELECT 1 FROM retrysafe_meta AS meta
WHERE meta.name = 'cleanup' AND {cleanup_is_due}
FOR UPDATE SKIP LOCKED

-- name: cleanup_claimed
-- Other processes leave cleanup alone for `turn` seconds.
-- Arguments: turn
UPDATE retrysafe_meta SET value = CAST(CAST({now_in_seconds} + :turn AS DECIMAL(30, 6)) AS CHAR)
WHERE name = 'cleanup'

-- name: postpone_cleanup
-- Set the time of the next round of cleanup.
-- Arguments: pause
UPDATE retrysafe_meta SET value = CAST(CAST({now_in_seconds} + :pause AS DECIMAL(30, 6)) AS CHAR)
WHERE name = 'cleanup'
