-- Be the only one who makes tables in this database, until the end of this transaction.
-- Columns: nothing of interest
--
-- The number is the first eight bytes of the SHA-256 of "retrysafe migrate": unlikely to be used by another program.
SELECT CAST(pg_advisory_xact_lock(-389786366880708796) AS text)
