-- Whether the attempt with this token has finished: it needs no lease any more, and was not lost.
-- Arguments: id, token
-- Columns: 1; no row when not
SELECT 1 FROM retrysafe_records
WHERE id = :id AND token = :token AND state IN ('completed', 'failed')
