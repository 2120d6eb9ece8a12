-- Checks of `retrysafe doctor` that read records.  What it asks about the file itself are pragmas, in doctor.py.
--
-- Each scans the table once and loads no body, unless it says otherwise.

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
-- Columns: records, seconds since the oldest was made
SELECT count(*), :now - min(created_at) FROM retrysafe_records WHERE {abandoned} AND ({expired}) IS NOT TRUE

-- name: oldest_due
-- The payload that has waited longest for a worker.
-- Arguments: now
-- Columns: since when it is due, now; no row when none is
--
-- By the partial index on what is due.
SELECT due_at, :now FROM retrysafe_records
WHERE due_at IS NOT NULL AND due_at <= :now AND {waiting}
ORDER BY due_at
LIMIT 1

-- name: expired_backlog
-- How many records have expired, and since when the first of them waits to be removed.
-- Arguments: now
-- Columns: records, seconds
--
-- A range of the index on the expiry.
SELECT count(*), :now - min(expires_at) FROM retrysafe_records WHERE {expired}
