-- Which of our tables and indexes are there, found along the search path as every other statement finds them.
-- Columns: name
SELECT name
FROM unnest(ARRAY[
    'retrysafe_records', 'retrysafe_records_expires_at', 'retrysafe_meta', 'retrysafe_audit',
    'retrysafe_verdicts'
]) AS name
WHERE to_regclass(name) IS NOT NULL
