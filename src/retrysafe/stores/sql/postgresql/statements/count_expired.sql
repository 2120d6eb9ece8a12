-- How many records a purge would remove.
-- Columns: records
--
-- A range of the index on the expiry.
SELECT count(*) FROM retrysafe_records AS record WHERE {expired}
