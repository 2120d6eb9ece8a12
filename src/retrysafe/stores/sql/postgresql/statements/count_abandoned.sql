-- How many records are abandoned and wait for an operator.
-- Columns: records, seconds since the oldest was made
--
-- It walks through the table once and loads no body.
SELECT count(*), date_part('epoch', {now} - min(record.created_at))
FROM retrysafe_records AS record
WHERE {abandoned} AND ({expired}) IS NOT TRUE
