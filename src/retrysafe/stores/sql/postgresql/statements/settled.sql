-- Which of these attempts have finished: they need no lease any more, and were not lost.
-- Arguments: claims
-- Columns: id and token of each such claim
--
-- A statement of its own, because it must see what was committed while the one before it waited for a row.
SELECT record.id, record.token
FROM ({claims}) AS claim
JOIN retrysafe_records AS record ON record.id = claim.id
WHERE record.token = claim.token AND record.state IN ('completed', 'failed')
