-- How many records a purge would remove.
-- Arguments: now
-- Columns: records
SELECT count(*) FROM retrysafe_records WHERE {expired}
