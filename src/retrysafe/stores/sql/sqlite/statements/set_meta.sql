-- Note something about the store itself.
-- Arguments: name, value
INSERT INTO retrysafe_meta (name, value) VALUES (:name, :value)
ON CONFLICT (name) DO UPDATE SET value = excluded.value
