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
