-- Make what is missing of the tables.
--
-- Atomic as one statement, which needs no transaction around it and works behind a pooler.  Under a lock that
-- ends with it, so that processes which open a new database at the same moment make them once.  The number of
-- the lock is "retry" in ASCII, and nobody else is likely to have chosen it.
DO $retrysafe$
BEGIN
    PERFORM pg_advisory_xact_lock(491328402041);
    {schema}
END
$retrysafe$
