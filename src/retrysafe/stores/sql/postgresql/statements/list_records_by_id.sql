-- As list_records.sql, among the ids from low to high.
-- Arguments: low, high, states, door, scope, part, target, prefix, older, younger, key, bodies, limit
-- Columns: those of a record, then effective state, size, now
--
-- One statement, so one view; a range of the primary key.
SELECT {listing_columns}
FROM retrysafe_records AS record
WHERE record.id BETWEEN CAST(:low AS bytea) AND CAST(:high AS bytea) AND {matches_query}
{listing_order}
LIMIT CAST(:limit AS bigint)
