-- Fragment, true for a record that has expired: past its expiry, and not in progress, or in progress with
-- lease and hold both over.  A missing lease lasts as long as the record.
-- The table is called `record` wherever this stands.
--
-- It is never true for a damaged row: a state or version that is not known is not judged.  For the opposite
-- write `({expired}) IS NOT TRUE`, because NOT unknown is unknown, and would hide the row.
record.version = 1
AND record.expires_at <= {now}
AND (
    record.state IN ('completed', 'failed')
    OR (
        record.state = 'in_progress'
        AND record.held_until <= {now}
        AND coalesce(record.lease_until, record.expires_at) <= {now}
    )
)
