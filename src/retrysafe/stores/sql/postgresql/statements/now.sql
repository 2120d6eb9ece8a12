-- Fragment, the server's time at which this statement arrived.
--
-- It is not now(), which stands still in a transaction of the caller's own, nor clock_timestamp(), which
-- would be another time in each place of one statement.
statement_timestamp()
