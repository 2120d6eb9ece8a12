-- Which of our tables and indexes exist.
-- Columns: name
SELECT name FROM sqlite_master
WHERE name IN (
    'retrysafe_records', 'retrysafe_records_expires_at', 'retrysafe_meta', 'retrysafe_audit',
'retrysafe_verdicts' )
