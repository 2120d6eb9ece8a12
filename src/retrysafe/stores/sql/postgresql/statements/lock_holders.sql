-- Transactions that have written or locked records and do not end.
-- Arguments: age
-- Columns: process, seconds since it began, what it does, application; NULL where this role may not see it
--
-- The server keeps no list of locked rows, but of who has locked or changed any row of a table.
SELECT
    pid,
    date_part('epoch', {now} - xact_start),
    state,
    application_name
FROM pg_locks
JOIN pg_stat_activity USING (pid)
WHERE locktype = 'relation'
    AND relation = to_regclass('retrysafe_records')
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND mode IN ('RowShareLock', 'RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
    AND granted
    AND pid <> pg_backend_pid()
    AND (xact_start IS NULL OR date_part('epoch', {now} - xact_start) > CAST(:age AS float8))
ORDER BY xact_start
LIMIT 10
