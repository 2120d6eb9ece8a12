-- The tables, and what is checked about them and about the server before they are used.

-- name: existing_tables
-- Which of our tables and indexes exist, found along the search path as every other statement finds them; an
-- index whose creation broke off does not.
-- Columns: name
--
-- To name pg_class is what makes the session look for changes first: without it, one that found no tables before
-- it waited for a lock would still find none afterwards.
SELECT name
FROM unnest(ARRAY[
    'retrysafe_records', 'retrysafe_records_expires_at', 'retrysafe_records_subject',
    'retrysafe_records_due_at', 'retrysafe_records_request_id', 'retrysafe_records_scope', 'retrysafe_meta',
    'retrysafe_audit', 'retrysafe_verdicts', 'retrysafe_routes'
]) AS name
JOIN pg_class ON pg_class.oid = to_regclass(name)
LEFT JOIN pg_index ON pg_index.indexrelid = pg_class.oid
WHERE pg_index.indisvalid IS NOT FALSE

-- name: table_columns
-- The columns of those of our tables that exist.
-- Columns: table, column
SELECT name, CAST(attname AS text)
FROM unnest(ARRAY[
    'retrysafe_records', 'retrysafe_meta', 'retrysafe_audit', 'retrysafe_verdicts', 'retrysafe_routes'
]) AS name
JOIN pg_attribute ON attrelid = to_regclass(name) AND attnum > 0 AND NOT attisdropped

-- name: index_request_id
-- For operators who often look for a request.
CREATE INDEX IF NOT EXISTS retrysafe_records_request_id ON retrysafe_records (request_id)

-- name: index_scope
-- For operators who often look for a tenant or a user.
CREATE INDEX IF NOT EXISTS retrysafe_records_scope ON retrysafe_records
USING gin (string_to_array(btrim(scope, '[]'), '],['))

-- name: meta
-- What is known about the store itself: the version of its tables.
-- Columns: name, value
SELECT name, value FROM retrysafe_meta

-- name: migration_lock
-- Be the only one who makes tables in this database, until the end of this transaction.
-- Columns: nothing of interest
--
-- The number is the first eight bytes of the SHA-256 of "retrysafe migrate": unlikely to be used by another
-- program.
SELECT CAST(pg_advisory_xact_lock(-389786366880708796) AS text)

-- name: server
-- What kind of server this is, asked on every new connection, because behind one address there may be another
-- server the next time.
-- Columns: version, as in 180000; whether it only follows another; whether transactions may not write;
--          encoding of the database
SELECT
    CAST(current_setting('server_version_num') AS integer),
    pg_is_in_recovery(),
    CAST(current_setting('transaction_read_only') AS boolean),
    current_setting('server_encoding')
