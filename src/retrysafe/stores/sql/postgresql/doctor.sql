-- Checks of `retrysafe doctor`: the server and its settings, the tables and our rights, records that need an
-- operator.

-- name: settings
-- How durable the server's commits are, and the defaults of this session.
-- Columns: version, as people write it; whether it only follows another; whether transactions may not write;
--          encoding; fsync, synchronous_commit, full_page_writes; isolation; role; now; process of the session
--
-- synchronous_commit is that of the session: in its own transactions the store overrules it.
SELECT
    current_setting('server_version'),
    pg_is_in_recovery(),
    CAST(current_setting('default_transaction_read_only') AS boolean),
    current_setting('server_encoding'),
    current_setting('fsync'),
    (SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit'),
    current_setting('full_page_writes'),
    current_setting('default_transaction_isolation'),
    CAST(current_user AS text),
    date_part('epoch', {now}),
    pg_backend_pid()

-- name: backend_pid
-- Which of the server's processes this session has: behind a pooler it changes.
-- Columns: its number
SELECT pg_backend_pid()

-- name: connections
-- How many connections the server accepts, and how many there are.
-- Columns: most, of these reserved for administrators, used
SELECT
    CAST(current_setting('max_connections') AS integer),
    CAST(current_setting('superuser_reserved_connections') AS integer)
        + CAST(coalesce(current_setting('reserved_connections', true), '0') AS integer),
    CAST((SELECT sum(numbackends) FROM pg_stat_database) AS bigint)

-- name: standbys
-- Which standbys a commit waits for, and how many servers receive the log.  Every role sees their number.
-- Columns: synchronous_standby_names, servers
SELECT
    current_setting('synchronous_standby_names'),
    (SELECT count(*) FROM pg_stat_replication)

-- name: table_properties
-- Which of our tables are emptied by a crash, and which show this role not all of their rows.
-- Columns: table, whether it is unlogged or temporary, whether row security is active for this role
SELECT name, relpersistence <> 'p', row_security_active(pg_class.oid)
FROM unnest(ARRAY[
    'retrysafe_records', 'retrysafe_meta', 'retrysafe_audit', 'retrysafe_verdicts', 'retrysafe_routes'
]) AS name
JOIN pg_class ON pg_class.oid = to_regclass(name)

-- name: missing_privileges
-- Rights that services and operators use and that this role does not have.
-- Columns: table or sequence, right, whether nothing works without it: the others are for processes to take turns
--          with cleanup, and to count calls by route
SELECT name, needed, name <> 'retrysafe_routes' AND (name <> 'retrysafe_meta' OR needed = 'SELECT')
FROM unnest(
    ARRAY[
        'retrysafe_records', 'retrysafe_records', 'retrysafe_records', 'retrysafe_records',
        'retrysafe_meta', 'retrysafe_meta', 'retrysafe_meta',
        'retrysafe_audit', 'retrysafe_audit', 'retrysafe_audit',
        'retrysafe_verdicts', 'retrysafe_verdicts', 'retrysafe_verdicts',
        'retrysafe_routes', 'retrysafe_routes', 'retrysafe_routes'
    ],
    ARRAY[
        'SELECT', 'INSERT', 'UPDATE', 'DELETE',
        'SELECT', 'INSERT', 'UPDATE',
        'SELECT', 'INSERT', 'UPDATE',
        'SELECT', 'INSERT', 'UPDATE',
        'SELECT', 'INSERT', 'UPDATE'
    ]
) AS rights (name, needed)
WHERE NOT has_table_privilege(to_regclass(name), needed)
UNION ALL
SELECT sequence, 'USAGE', true
FROM pg_get_serial_sequence('retrysafe_audit', 'entry') AS sequence
WHERE NOT has_sequence_privilege(sequence, 'USAGE')

-- name: count_unreadable
-- How many records have a version, state or expiry that this release does not understand: they block their keys
-- for ever, because it is not known whether they have expired.
-- Columns: records, one of their ids
--
-- It scans the table once and loads no body.  Columns that may not be NULL are checked all the same: a constraint
-- can be dropped.
SELECT count(*), decode(min(encode(id, 'hex')), 'hex')
FROM retrysafe_records
WHERE version IS DISTINCT FROM 1
    OR coalesce(state, '') NOT IN ('in_progress', 'completed', 'failed')
    OR expires_at IS NULL
    OR NOT isfinite(expires_at)

-- name: count_abandoned
-- How many records are abandoned and wait for an operator.
-- Columns: records, seconds since the oldest was made
--
-- It scans the table once and loads no body.
SELECT count(*), date_part('epoch', {now} - min(record.created_at))
FROM retrysafe_records AS record
WHERE {abandoned} AND ({expired}) IS NOT TRUE

-- name: oldest_due
-- The payload that has waited longest for a worker.
-- Columns: since when it is due, now; no row when none is
--
-- By the partial index on what is due.
SELECT date_part('epoch', record.due_at), date_part('epoch', {now})
FROM retrysafe_records AS record
WHERE record.due_at IS NOT NULL AND record.due_at <= {now} AND {waiting}
ORDER BY record.due_at
LIMIT 1

-- name: expired_backlog
-- How many records have expired, and since when the first of them waits to be removed.
-- Columns: records, seconds
--
-- A range of the index on the expiry.
SELECT count(*), date_part('epoch', {now} - min(record.expires_at))
FROM retrysafe_records AS record
WHERE {expired}

-- name: vacuum
-- Whether the server cleans up behind us.
-- Columns: records alive and dead, as the server estimates; whether it cleans up by itself, and in this table;
--          seconds since it last did, NULL when never
SELECT
    n_live_tup,
    n_dead_tup,
    CAST(current_setting('autovacuum') AS boolean),
    NOT coalesce('autovacuum_enabled=false' = ANY (reloptions), false),
    date_part('epoch', {now} - greatest(last_vacuum, last_autovacuum))
FROM pg_stat_all_tables
JOIN pg_class ON pg_class.oid = relid
WHERE relid = to_regclass('retrysafe_records')

-- name: lock_holders
-- Transactions that have written or locked records and do not end.
-- Arguments: age
-- Columns: process, seconds since it began, what it does, application; NULL where this role may not see it
--
-- The server has no list of locked rows, but one of the transactions that locked or changed any row of a table.
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
