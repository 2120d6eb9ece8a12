-- Forget a record that is abandoned, by an operator's decision.
-- Arguments: id, token, now
-- Columns: what the audit trail keeps of it: key, scope, action, target, request_id; no row when it is not as
--          it was seen
--
-- Atomic and fenced as one conditional statement on one row: an owner who came back and renewed or finished,
-- and a successor, are left alone.  A checkpointed record is no exception: whoever decides knows what the
-- client saw.
DELETE FROM retrysafe_records
WHERE id = :id AND token = :token AND version = 1 AND {abandoned} AND ({expired}) IS NOT TRUE
RETURNING key, scope, action, target, request_id
