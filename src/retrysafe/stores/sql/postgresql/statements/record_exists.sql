-- Whether there is a record of a key, expired or not.
-- Arguments: id
-- Columns: 1; no row when there is none
SELECT 1 FROM retrysafe_records WHERE id = CAST(:id AS bytea)
