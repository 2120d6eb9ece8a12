-- Fragment, the columns of a record in the order in which codec.decode reads them; the response's four follow.
-- The table is called `record` wherever this stands.
--
-- Times are kept as such, for people, and read as seconds since the epoch.
record.version, record.id, record.token, record.fingerprint, record.state, record.mode, record.attempt,
date_part('epoch', record.lease_until), record.checkpointed,
record.door, record.scope, record.key, record.action, record.target, record.request_id, record.correlation_id,
date_part('epoch', record.created_at), date_part('epoch', record.updated_at),
date_part('epoch', record.completed_at), date_part('epoch', record.expires_at),
date_part('epoch', record.held_until)
