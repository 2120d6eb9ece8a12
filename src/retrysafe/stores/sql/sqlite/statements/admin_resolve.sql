-- Settle a record that is abandoned, as an operator found out.
-- Arguments: id, token, fence, state, status, headers, body, omitted, now
-- Columns: what the audit trail keeps of it: key, scope, action, target, request_id; no row when it is not as
--          it was seen
--
-- Atomic and fenced as one conditional statement on one row.  The new token `fence` shuts out the owner,
-- should it come back with an outcome of its own.  The record lasts for its whole retention from now on: its
-- client was told not to try again, and may come back much later; and a held record may be past
-- its expiry already.
UPDATE retrysafe_records SET
    token = :fence,
    state = :state,
    completed_at = :now,
    updated_at = :now,
    expires_at = :now + max(expires_at - created_at, 0.0),
    status = :status,
    headers = :headers,
    body = :body,
    omitted = :omitted
WHERE id = :id AND token = :token AND version = 1 AND {abandoned} AND ({expired}) IS NOT TRUE
RETURNING key, scope, action, target, request_id
