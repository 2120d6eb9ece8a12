-- Which of our tables and indexes are there, found along the search path as every other statement finds them.
-- Columns: name
--
-- To name pg_class is what makes the session look for news first: without it, one that found no tables before
-- it waited for a lock would still find none afterwards.
SELECT name
FROM unnest(ARRAY[
    'retrysafe_records', 'retrysafe_records_expires_at', 'retrysafe_meta', 'retrysafe_audit',
    'retrysafe_verdicts'
]) AS name
JOIN pg_class ON pg_class.oid = to_regclass(name)
