-- Which of our tables are emptied by a crash, and which show this role not all of their rows.
-- Columns: table, whether it is unlogged or temporary, whether row security is active for this role
SELECT name, relpersistence <> 'p', row_security_active(pg_class.oid)
FROM unnest(ARRAY['retrysafe_records', 'retrysafe_meta', 'retrysafe_audit', 'retrysafe_verdicts']) AS name
JOIN pg_class ON pg_class.oid = to_regclass(name)
