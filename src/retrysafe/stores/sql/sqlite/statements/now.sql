-- What time it is for the store.
-- Arguments: now
-- Columns: now
SELECT :now
