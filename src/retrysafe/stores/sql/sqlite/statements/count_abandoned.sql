-- How many records are abandoned and wait for an operator.
-- Arguments: now
-- Columns: records, when the oldest was made
--
-- It walks through the table once and loads no body.
SELECT count(*), min(created_at) FROM retrysafe_records WHERE {abandoned} AND ({expired}) IS NOT TRUE
