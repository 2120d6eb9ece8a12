-- Delete a record that is abandoned, or that was seen completed or failed, by an operator's decision.
-- Arguments: id, token, state, patience
-- Columns: what the audit trail keeps of it: key, scope, action, target, request_id; no row when it is not as
--          it was seen
--
-- Atomic and fenced as one conditional statement on one row, by token and state: an owner that renewed or
-- finished meanwhile, and a successor, are left alone, and so is every lease that has not ended.  If another
-- transaction has locked the row it waits, and then judges what that one has left.  A checkpointed record is not an
-- exception: the operator knows what the client saw.
DELETE FROM retrysafe_records AS record
WHERE record.id = CAST(:id AS bytea)
    AND record.token = CAST(:token AS bytea)
    AND record.version = 1
    AND record.state = CAST(:state AS text)
    AND (record.state IN ('completed', 'failed') OR ({abandoned}))
    AND ({expired}) IS NOT TRUE
    AND {lock_timeout}
RETURNING record.key, record.scope, record.action, record.target, record.request_id
