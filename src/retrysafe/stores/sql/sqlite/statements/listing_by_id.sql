-- As listing.sql, among the ids from low to high.
-- Arguments: low, high, standings, door, scope, part, target, prefix, older, younger, key, bodies, limit, now
-- Columns: those of a record, then standing, size, now
--
-- One statement, so one view; a range of the primary key.
SELECT {listing_columns}
FROM retrysafe_records
WHERE id BETWEEN :low AND :high AND {matching}
{order}
LIMIT :limit
