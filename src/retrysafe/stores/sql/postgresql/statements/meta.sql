-- What is known about the store itself.
-- Columns: name, value
SELECT name, value FROM retrysafe_meta
