-- The columns of those of our tables that are there.
-- Columns: table, column
SELECT name, CAST(attname AS text)
FROM unnest(ARRAY['retrysafe_records', 'retrysafe_meta', 'retrysafe_audit', 'retrysafe_verdicts']) AS name
JOIN pg_attribute ON attrelid = to_regclass(name) AND attnum > 0 AND NOT attisdropped
