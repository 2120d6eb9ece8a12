-- Fragment, the columns of a record in the order in which codec.decode reads them; the response's four follow.
version, id, token, fingerprint, state, mode, attempt, lease_until, checkpointed,
door, scope, key, action, target, request_id, correlation_id,
created_at, updated_at, completed_at, expires_at, held_until
