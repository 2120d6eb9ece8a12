-- Fragment, true for a record in progress whose lease has ended: its owner died, or lost the store.
-- The table is called `record` wherever this stands.
--
-- A missing lease lasts as long as the record, as in take_over.sql, so a held record is abandoned then too.
record.state = 'in_progress' AND coalesce(record.lease_until, record.expires_at) <= {now}
