-- Forget a record that is abandoned, by an operator's decision.
-- Arguments: id, token, patience
-- Columns: what the audit trail keeps of it: key, scope, action, target, request_id; no row when it is not as
--          it was seen
--
-- Atomic and fenced as one conditional statement on one row: an owner who came back and renewed or finished,
-- and a successor, are left alone.  If somebody has the row at this moment it waits, and then judges what that
-- one has left.  A checkpointed record is no exception: whoever decides knows what the client saw.
DELETE FROM retrysafe_records AS record
WHERE record.id = CAST(:id AS bytea)
    AND record.token = CAST(:token AS bytea)
    AND record.version = 1
    AND {abandoned}
    AND ({expired}) IS NOT TRUE
    AND {patient}
RETURNING record.key, record.scope, record.action, record.target, record.request_id
