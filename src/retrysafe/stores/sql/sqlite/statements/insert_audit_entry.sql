-- Write a line of the audit trail.
-- Arguments: by, reason, act, outcome, id, key, scope, action, target, request_id, now
-- Columns: entry, its number
--
-- It stands in the transaction of the act that it tells of: there is neither without the other.
INSERT INTO retrysafe_audit (at, by, reason, act, outcome, id, key, scope, action, target, request_id)
VALUES (:now, :by, :reason, :act, :outcome, :id, :key, :scope, :action, :target, :request_id)
RETURNING entry
