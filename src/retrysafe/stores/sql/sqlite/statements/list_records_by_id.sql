-- As list_records.sql, among the ids from low to high.
-- Arguments: low, high, states, door, scope, part, target, prefix, older, younger, key, bodies, limit, now
-- Columns: those of a record, then effective state, size, now
--
-- One statement, so one view; a range of the primary key.
SELECT {listing_columns}
FROM retrysafe_records
WHERE id BETWEEN :low AND :high AND {matches_query}
{listing_order}
LIMIT :limit
