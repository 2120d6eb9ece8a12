-- Fragment, the columns of a record as they are written; the response's four follow.  To read them, see
-- record_columns.sql.
version, id, token, fingerprint, state, mode, attempt, lease_until, checkpointed,
door, scope, key, action, target, request_id, correlation_id,
created_at, updated_at, completed_at, expires_at, held_until
