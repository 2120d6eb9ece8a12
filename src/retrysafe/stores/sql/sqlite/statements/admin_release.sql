-- Delete a record that is abandoned, or that was seen completed or failed, by an operator's decision.
-- Arguments: id, token, state, now
-- Columns: what the audit trail keeps of it: key, scope, action, target, request_id; no row when it is not as
--          it was seen
--
-- Atomic and fenced as one conditional statement on one row, by token and state: an owner that renewed or
-- finished meanwhile, and a successor, are left alone, and so is every lease that has not ended.  A
-- checkpointed record is not an exception: the operator knows what the client saw.
DELETE FROM retrysafe_records
WHERE id = :id
    AND token = :token
    AND version = 1
    AND state = :state
    AND (state IN ('completed', 'failed') OR ({abandoned}))
    AND ({expired}) IS NOT TRUE
RETURNING key, scope, action, target, request_id
