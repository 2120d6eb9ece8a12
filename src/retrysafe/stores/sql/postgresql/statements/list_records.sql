-- Records that an operator asks for.
-- Arguments: states, door, scope, part, target, prefix, older, younger, key, bodies, limit
-- Columns: those of a record, then effective state, size, now
--
-- One statement, so one view.  It walks through the table: operators ask rarely, and an index for them would
-- cost every request.  Only what is shown is fetched whole, after the limit.
SELECT {listing_columns}
FROM retrysafe_records AS record
WHERE record.id = ANY (ARRAY(
    SELECT record.id FROM retrysafe_records AS record
    WHERE {matches_query}
    {listing_order}
    LIMIT CAST(:limit AS bigint)
))
{listing_order}
