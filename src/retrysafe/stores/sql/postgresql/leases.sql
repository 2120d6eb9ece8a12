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
