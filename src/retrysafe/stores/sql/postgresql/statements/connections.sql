-- How many connections the server accepts, and how many there are.
-- Columns: most, of these reserved for administrators, used
SELECT
    CAST(current_setting('max_connections') AS integer),
    CAST(current_setting('superuser_reserved_connections') AS integer)
        + CAST(coalesce(current_setting('reserved_connections', true), '0') AS integer),
    CAST((SELECT sum(numbackends) FROM pg_stat_database) AS bigint)
