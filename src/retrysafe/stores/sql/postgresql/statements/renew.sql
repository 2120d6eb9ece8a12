-- Prolong the leases of running records, ended or not: whoever was not overtaken may go on.
-- Arguments: claims, patience
-- Columns: id and token of each claim that was renewed; not of those that are fenced, or finished
--
-- Atomic and fenced: each row is changed on its own condition, all in one statement and one commit.
UPDATE retrysafe_records AS record
SET lease_until = {now} + claim.lease * interval '1 second'
FROM ({claims}) AS claim
WHERE record.id = claim.id
    AND record.token = claim.token
    AND record.state = 'in_progress'
    AND {patient}
RETURNING record.id, record.token
