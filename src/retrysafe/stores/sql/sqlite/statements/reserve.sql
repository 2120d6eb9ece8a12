-- Reserve a key that has no record, or whose record has expired.
-- Arguments: id, token, fingerprint, mode, lease, retention, hold, door, scope, key, action, target,
--            request_id, correlation_id, now
-- Columns: attempt; no row when the key is reserved
--
-- Atomic as one statement on one row: the primary key lets one of many inserts through, and the expired
-- record is replaced by the same statement that found it expired.  Every column is set again, so nothing
-- of the old record remains.
INSERT INTO retrysafe_records (
    {columns}, status, headers, body, omitted
)
VALUES (
    1, :id, :token, :fingerprint, 'in_progress', :mode, 1, :now + :lease, 0,
    :door, :scope, :key, :action, :target, :request_id, :correlation_id,
    :now, :now, NULL, :now + :retention, :now + :hold,
    NULL, NULL, NULL, 0
)
ON CONFLICT (id) DO UPDATE SET
    token = excluded.token,
    fingerprint = excluded.fingerprint,
    state = excluded.state,
    mode = excluded.mode,
    attempt = excluded.attempt,
    lease_until = excluded.lease_until,
    checkpointed = excluded.checkpointed,
    door = excluded.door,
    scope = excluded.scope,
    key = excluded.key,
    action = excluded.action,
    target = excluded.target,
    request_id = excluded.request_id,
    correlation_id = excluded.correlation_id,
    created_at = excluded.created_at,
    updated_at = excluded.updated_at,
    completed_at = excluded.completed_at,
    expires_at = excluded.expires_at,
    held_until = excluded.held_until,
    status = excluded.status,
    headers = excluded.headers,
    body = excluded.body,
    omitted = excluded.omitted
WHERE {expired}
RETURNING attempt
