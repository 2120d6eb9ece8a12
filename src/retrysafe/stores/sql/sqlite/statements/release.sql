-- Forget a running record.
-- Arguments: id, token
-- Columns: 1; no row when fenced
--
-- Atomic and fenced as one conditional statement on one row.
DELETE FROM retrysafe_records
WHERE id = :id AND token = :token AND state = 'in_progress'
RETURNING 1
