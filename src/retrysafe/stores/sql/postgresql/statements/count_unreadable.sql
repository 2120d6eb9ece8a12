-- How many records say nothing that this release understands about their version, state or expiry: they block
-- their keys for ever, because it is not known whether they have expired.
-- Columns: records, one of their ids
--
-- It walks through the table once and loads no body.  Columns that may not be NULL are asked all the same:
-- a constraint can be dropped.
SELECT count(*), decode(min(encode(id, 'hex')), 'hex')
FROM retrysafe_records
WHERE version IS DISTINCT FROM 1
    OR coalesce(state, '') NOT IN ('in_progress', 'completed', 'failed')
    OR expires_at IS NULL
    OR NOT isfinite(expires_at)
