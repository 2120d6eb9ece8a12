-- Extend the leases of running records, ended or not: an attempt that was not taken over may go on.
-- Arguments: claims, patience
-- Columns: id and token of each claim that was renewed; not of those that are fenced, or finished, or locked
--
-- Atomic and fenced: each row is changed on its own condition, all in one statement and one commit.
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
