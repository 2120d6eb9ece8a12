-- What kind of server this is, asked on every new connection, because behind one address there may be another
-- server the next time.
-- Columns: version, as in 180000; whether it only follows another; whether transactions may not write;
--          encoding of the database
SELECT
    CAST(current_setting('server_version_num') AS integer),
    pg_is_in_recovery(),
    CAST(current_setting('transaction_read_only') AS boolean),
    current_setting('server_encoding')
