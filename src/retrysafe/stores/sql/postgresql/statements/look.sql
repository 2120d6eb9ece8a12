-- The record of a key, unless it has expired.
-- Arguments: id
-- Columns: those of a record, then now
--
-- One lookup by primary key, which does not wait.  A damaged row is shown, never skipped: see expired.sql.
SELECT {record_columns}, record.status, record.headers, record.body, record.omitted, date_part('epoch', {now})
FROM retrysafe_records AS record
WHERE record.id = CAST(:id AS bytea) AND ({expired}) IS NOT TRUE
