-- Checks of `retrysafe doctor` that read records.  What it asks about the file itself are pragmas, in doctor.py;
-- how many records have expired is `count_expired` in admin.sql.
--
-- Each scans the table once and loads no body.

-- name: count_unreadable
-- How many records have a version, state or expiry that this release does not understand: they block their keys
-- for ever, because it is not known whether they have expired.
-- Columns: records, one of their ids
SELECT count(*), min(id) FROM retrysafe_records
WHERE version IS NOT 1
    OR coalesce(state, '') NOT IN ('in_progress', 'completed', 'failed')
    OR typeof(expires_at) <> 'real'

-- name: count_abandoned
-- How many records are abandoned and wait for an operator.
-- Arguments: now
-- Columns: records, when the oldest was made
SELECT count(*), min(created_at) FROM retrysafe_records WHERE {abandoned} AND ({expired}) IS NOT TRUE
