-- Which of our tables exist.
-- Columns: name
SELECT name FROM sqlite_master
WHERE type = 'table' AND name IN ('retrysafe_records', 'retrysafe_meta')
