-- Records that an operator asks for.
-- Arguments: states, door, scope, part, target, prefix, older, younger, key, bodies, limit, now
-- Columns: those of a record, then effective state, size, now
--
-- One statement, so one view.  It walks through the table: operators ask rarely, and an index for them would
-- cost every request.  Only what is shown is fetched whole, after the limit.
SELECT {listing_columns}
FROM retrysafe_records
WHERE rowid IN (
    SELECT rowid FROM retrysafe_records
    WHERE {matches_query}
    {listing_order}
    LIMIT :limit
)
{listing_order}
