-- How many records say nothing that this release understands about their version, state or expiry: they block
-- their keys for ever, because it is not known whether they have expired.
-- Columns: records, one of their ids
--
-- It walks through the table once and loads no body.
SELECT count(*), min(id) FROM retrysafe_records
WHERE version IS NOT 1
    OR coalesce(state, '') NOT IN ('in_progress', 'completed', 'failed')
    OR typeof(expires_at) <> 'real'
