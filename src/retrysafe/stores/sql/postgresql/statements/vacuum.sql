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
