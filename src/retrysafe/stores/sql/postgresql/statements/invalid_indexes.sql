-- Indexes of the records that are not ready to be used.
-- Columns: name
SELECT CAST(relname AS text)
FROM pg_index
JOIN pg_class ON pg_class.oid = indexrelid
WHERE indrelid = to_regclass('retrysafe_records') AND NOT (indisvalid AND indisready)
