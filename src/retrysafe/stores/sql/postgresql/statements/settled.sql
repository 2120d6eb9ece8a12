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
