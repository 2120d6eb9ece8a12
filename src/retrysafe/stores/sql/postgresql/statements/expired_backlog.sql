-- How many records have expired, and since when the first of them waits to be removed.
-- Columns: records, seconds
--
-- A range of the index on the expiry.
SELECT count(*), date_part('epoch', {now} - min(record.expires_at))
FROM retrysafe_records AS record
WHERE {expired}
