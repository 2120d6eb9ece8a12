-- The tables, and what is checked about them and about the server before they are used.

-- name: existing_tables
-- Which of our tables and indexes exist in this database.
-- Columns: name
SELECT LOWER(TABLE_NAME) FROM information_schema.TABLES
WHERE TABLE_SCHEMA = DATABASE()
    AND LOWER(TABLE_NAME) IN (
        'retrysafe_records', 'retrysafe_meta', 'retrysafe_audit', 'retrysafe_verdicts', 'retrysafe_routes'
    )
UNION ALL
SELECT LOWER(INDEX_NAME) FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = DATABASE()
    AND SEQ_IN_INDEX = 1
    AND LOWER(INDEX_NAME) IN (
        'retrysafe_records_expires_at', 'retrysafe_records_due_at', 'retrysafe_records_request_id'
    )

-- name: table_columns
-- The columns of those of our tables that exist.
-- Columns: table, column
SELECT LOWER(TABLE_NAME), LOWER(COLUMN_NAME) FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA = DATABASE()
    AND LOWER(TABLE_NAME) IN (
        'retrysafe_records', 'retrysafe_meta', 'retrysafe_audit', 'retrysafe_verdicts', 'retrysafe_routes'
    )

-- name: index_request_id
-- For operators who often look for a request.
CREATE INDEX retrysafe_records_request_id ON retrysafe_records (request_id(128))

-- name: meta
-- What is known about the store itself: the version of its tables.
-- Columns: name, value
SELECT name, value FROM retrysafe_meta

-- name: migration_lock
-- Be the only one who makes tables in this database, until the lock is released or the session ends.
-- Arguments: patience
-- Columns: 1; 0 if another process makes tables now
--
-- Its name is known to the whole server, so it has that of the database in it, in a form that is not too long.
SELECT GET_LOCK(CONCAT('retrysafe migrate ', LEFT(SHA2(DATABASE(), 256), 32)), :patience)

-- name: migration_unlock
-- The end of that.
-- Columns: 1
SELECT RELEASE_LOCK(CONCAT('retrysafe migrate ', LEFT(SHA2(DATABASE(), 256), 32)))

-- name: server
-- What kind of server this is, asked on every new connection, because behind one address there may be another
-- server the next time.
-- Columns: version; whether it accepts no writes; the largest packet that it accepts; database, NULL if there is none
SELECT
    VERSION(),
    CAST(@@GLOBAL.read_only OR @@GLOBAL.innodb_read_only AS SIGNED),
    CAST(@@SESSION.max_allowed_packet AS SIGNED),
    DATABASE()
