-- Checks of `retrysafe doctor`: the server and its settings, the tables and our rights, records that need an
-- operator.

-- name: settings
-- Who we are, and where.
-- Columns: version, as people write it; user; database, NULL if there is none; now
SELECT VERSION(), CURRENT_USER(), DATABASE(), {now_in_seconds}

-- name: variables
-- The server's settings that matter to a store.  What a server does not know is missing.
-- Columns: name, value
SHOW GLOBAL VARIABLES WHERE Variable_name IN (
    'read_only', 'innodb_read_only', 'super_read_only', 'innodb_flush_log_at_trx_commit', 'innodb_doublewrite',
    'log_bin', 'sync_binlog', 'binlog_format', 'sql_mode', 'max_connections', 'max_allowed_packet',
    'tx_isolation', 'transaction_isolation', 'innodb_snapshot_isolation', 'innodb_lock_wait_timeout', 'wait_timeout',
    'wsrep_on', 'wsrep_sync_wait', 'wsrep_cluster_address'
)

-- name: status
-- What the server does now.
-- Columns: name, value
SHOW GLOBAL STATUS WHERE Variable_name IN (
    'Threads_connected', 'wsrep_cluster_status', 'wsrep_cluster_size', 'wsrep_ready', 'wsrep_local_state_comment'
)

-- name: table_properties
-- How our tables are stored.
-- Columns: table, engine, collation
SELECT LOWER(TABLE_NAME), COALESCE(ENGINE, ''), COALESCE(TABLE_COLLATION, '') FROM information_schema.TABLES
WHERE TABLE_SCHEMA = DATABASE()
    AND LOWER(TABLE_NAME) IN (
        'retrysafe_records', 'retrysafe_meta', 'retrysafe_audit', 'retrysafe_verdicts', 'retrysafe_routes'
    )

-- name: column_types
-- The types of those columns that decide what is the same.
-- Columns: column, type, collation; NULL for bytes
SELECT LOWER(COLUMN_NAME), LOWER(COLUMN_TYPE), COLLATION_NAME FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA = DATABASE()
    AND LOWER(TABLE_NAME) = 'retrysafe_records'
    AND LOWER(COLUMN_NAME) IN ('id', 'token', 'fingerprint')

-- name: table_rights
-- What this user may do with our tables, apart from DELETE: a table that is missing here may not be read at all.
-- Columns: table, rights with commas between them
SELECT LOWER(TABLE_NAME), MIN(LOWER(PRIVILEGES)) FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA = DATABASE()
    AND LOWER(TABLE_NAME) IN (
        'retrysafe_records', 'retrysafe_meta', 'retrysafe_audit', 'retrysafe_verdicts', 'retrysafe_routes'
    )
GROUP BY LOWER(TABLE_NAME)

-- name: may_delete
-- Refused, if this user may not delete records.  Nothing is deleted: the server says how it would be done.
EXPLAIN DELETE FROM retrysafe_records WHERE id = x'00'

-- name: count_unreadable
-- How many records have a version or state that this release does not understand: they block their keys for ever,
-- because it is not known whether they have expired.
-- Columns: records, one of their ids
--
-- It scans the table once and loads no body.  Columns that may not be NULL are checked all the same: a constraint
-- can be dropped.
SELECT COUNT(*), MIN(id)
FROM retrysafe_records
WHERE NOT (version <=> 1)
    OR COALESCE(state, '') NOT IN ('in_progress', 'completed', 'failed')
    OR expires_at IS NULL

-- name: count_abandoned
-- How many records are abandoned and wait for an operator.
-- Columns: records, seconds since the oldest was made
--
-- It scans the table once and loads no body.
SELECT COUNT(*), TIMESTAMPDIFF(MICROSECOND, MIN(record.created_at), {now}) / 1e6
FROM retrysafe_records AS record
WHERE {abandoned} AND ({expired}) IS NOT TRUE

-- name: oldest_due
-- The payload that has waited longest for a worker.
-- Columns: since when it is due, now; no row when none is
--
-- By the index on what is due.
SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', record.due_at) / 1e6, {now_in_seconds}
FROM retrysafe_records AS record
WHERE record.due_at <= {now} AND {waiting}
ORDER BY record.due_at
LIMIT 1

-- name: expired_backlog
-- How many records have expired, and since when the first of them waits to be removed.
-- Columns: records, seconds
--
-- A range of the index on the expiry.
SELECT COUNT(*), TIMESTAMPDIFF(MICROSECOND, MIN(record.expires_at), {now}) / 1e6
FROM retrysafe_records AS record
WHERE {expired}

-- name: long_transactions
-- Transactions that hold locks on any table and do not end.
-- Arguments: age
-- Columns: thread, seconds since it began
--
-- For a user with the right PROCESS.  Which rows they have locked, the two servers say in different places.
SELECT CAST(trx_mysql_thread_id AS SIGNED), CAST(TIMESTAMPDIFF(SECOND, trx_started, NOW()) AS SIGNED)
FROM information_schema.INNODB_TRX
WHERE trx_tables_locked > 0 AND TIMESTAMPDIFF(SECOND, trx_started, NOW()) > :age
    AND trx_mysql_thread_id <> CONNECTION_ID()
ORDER BY trx_started
LIMIT 10
