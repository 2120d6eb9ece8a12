-- Whether there is a record of a key, expired or not.
-- Arguments: id
-- Columns: 1; no row when there is none
--
-- Most keys are new, and learn it here for a fraction of what it costs to look.
SELECT 1 FROM retrysafe_records WHERE id = :id
