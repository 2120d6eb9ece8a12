-- The record of a key, unless it has expired.
-- Arguments: id, now
-- Columns: those of a record, then now
--
-- One lookup by primary key.  A damaged row is shown, never skipped: see expired.sql.
SELECT {columns}, status, headers, body, omitted, :now
FROM retrysafe_records
WHERE id = :id AND ({expired}) IS NOT TRUE
