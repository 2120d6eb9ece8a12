-- Raise the high-water mark of the clock.  It never falls, whichever process writes it: max() and one statement.
-- Arguments: now
-- Columns: value, the mark as it is now
INSERT INTO retrysafe_meta (name, value) VALUES ('high_water', :now)
ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)
RETURNING value
