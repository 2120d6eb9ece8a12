-- Fragment, notifies listeners that the record is finished or released, if a request may be waiting for it.
-- Arguments: announced
-- The table is called `record` wherever this stands.
--
-- Only then: a notification makes commits wait for each other.  It is delivered with the commit, or never.
CASE WHEN CAST(:announced AS integer) = 1 THEN
    CAST(pg_notify('retrysafe', encode(record.id, 'hex')) AS text)
END
