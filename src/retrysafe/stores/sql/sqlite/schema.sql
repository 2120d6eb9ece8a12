-- The tables, and what a process reads and writes about the store itself before it uses them.

-- name: existing_tables
-- Which of our tables and indexes exist.
-- Columns: name
SELECT name FROM sqlite_master
WHERE name IN (
    'retrysafe_records', 'retrysafe_records_expires_at', 'retrysafe_records_subject',
    'retrysafe_records_due_at', 'retrysafe_records_request_id', 'retrysafe_records_scope', 'retrysafe_meta',
    'retrysafe_audit', 'retrysafe_verdicts', 'retrysafe_routes'
)

-- name: table_columns
-- The columns of those of our tables that exist.
-- Columns: table, column
SELECT sqlite_master.name, of_table.name
FROM sqlite_master
JOIN pragma_table_info(sqlite_master.name) AS of_table
WHERE sqlite_master.name IN (
    'retrysafe_records', 'retrysafe_meta', 'retrysafe_audit', 'retrysafe_verdicts', 'retrysafe_routes'
)

-- name: index_request_id
-- For operators who often look for a request.
CREATE INDEX IF NOT EXISTS retrysafe_records_request_id ON retrysafe_records (request_id)

-- name: index_scope
-- For operators who often look for a tenant or a user.
CREATE INDEX IF NOT EXISTS retrysafe_records_scope ON retrysafe_records (scope)

-- name: meta
-- What is known about the store itself: the version of its tables, its clock.
-- Columns: name, value
SELECT name, value FROM retrysafe_meta

-- name: set_meta
-- Store something about the store itself.
-- Arguments: name, value
INSERT INTO retrysafe_meta (name, value) VALUES (:name, :value)
ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- name: raise_high_water
-- Raise the high-water mark of the clock.
-- Arguments: now
-- Columns: value, the mark as it is now
--
-- Atomic as one statement on one row, with max(): the mark never falls, whichever process writes it.
INSERT INTO retrysafe_meta (name, value) VALUES ('high_water', :now)
ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)
RETURNING value
