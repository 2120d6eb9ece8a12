-- Fragment, true for a record in progress whose lease has ended: its owner died, or lost the store.
-- Arguments: now
--
-- A missing lease lasts as long as the record, as in take_over.sql, so a held record is abandoned then too.
state = 'in_progress' AND coalesce(lease_until, expires_at) <= :now
