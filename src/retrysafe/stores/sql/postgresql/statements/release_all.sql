-- Forget running records.
-- Arguments: claims, patience
-- Columns: 1 for each that was released, then nothing of interest
--
-- Atomic and fenced: each row is removed on its own condition, all in one statement and one commit.
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
