-- Bring a line of the audit trail up to date, for an act of several steps.
-- Arguments: entry, outcome
--
-- It stands in the transaction of each step, so that the line is true whenever the act breaks off.
UPDATE retrysafe_audit SET outcome = :outcome WHERE entry = :entry
