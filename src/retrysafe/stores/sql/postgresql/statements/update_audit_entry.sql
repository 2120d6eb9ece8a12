-- Bring a line of the audit trail up to date, for an act of several steps.
-- Arguments: entry, outcome
-- Columns: 1
--
-- It stands in the transaction of each step, so that the line is true whenever the act breaks off.
UPDATE retrysafe_audit SET outcome = CAST(:outcome AS text)
WHERE entry = CAST(:entry AS bigint)
RETURNING 1
