-- Settle a record that is abandoned, as an operator found out.
-- Arguments: id, token, fence, state, status, headers, body, omitted, patience
-- Columns: what the audit trail keeps of it: key, scope, action, target, request_id; no row when it is not as
--          it was seen
--
-- Atomic and fenced as one conditional statement on one row; see admin_release.sql.  The new token `fence`
-- shuts out the owner, should it come back with an outcome of its own.  The record lasts for its whole
-- retention from now on: its client was told not to try again, and may come back much later; and a
-- held record may be past its expiry already.
UPDATE retrysafe_records AS record SET
    token = CAST(:fence AS bytea),
    state = CAST(:state AS text),
    completed_at = {now},
    updated_at = {now},
    expires_at = {now} + greatest(record.expires_at - record.created_at, interval '0'),
    status = CAST(:status AS integer),
    headers = CAST(:headers AS text),
    body = CAST(:body AS bytea),
    omitted = CAST(:omitted AS smallint)
WHERE record.id = CAST(:id AS bytea)
    AND record.token = CAST(:token AS bytea)
    AND record.version = 1
    AND {abandoned}
    AND ({expired}) IS NOT TRUE
    AND {lock_timeout}
RETURNING record.key, record.scope, record.action, record.target, record.request_id
