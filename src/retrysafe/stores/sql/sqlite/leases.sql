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
