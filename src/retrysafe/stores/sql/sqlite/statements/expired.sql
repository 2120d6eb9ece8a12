-- Fragment, true for a record that has expired: past its expiry, and not in progress, or in progress with
-- lease and hold both over.  A missing lease lasts as long as the record.
-- Arguments: now
--
-- It is never true for a damaged row.  What is NULL compares as unknown and text or bytes compare as greater
-- than any number, so such a time has not passed; a state or version that is not known is not judged.  For
-- the opposite write `({expired}) IS NOT TRUE`, because NOT unknown is unknown, and would hide the row.
version = 1
AND expires_at <= :now
AND (
    state IN ('completed', 'failed')
    OR (state = 'in_progress' AND held_until <= :now AND coalesce(lease_until, expires_at) <= :now)
)
