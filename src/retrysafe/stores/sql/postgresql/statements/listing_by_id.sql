-- As listing.sql, among the ids from low to high.
-- Arguments: low, high, standings, door, scope, part, target, prefix, older, younger, key, bodies, limit
-- Columns: those of a record, then standing, size, now
--
-- One statement, so one view; a range of the primary key.
SELECT {listing_columns}
FROM retrysafe_records AS record
WHERE record.id BETWEEN CAST(:low AS bytea) AND CAST(:high AS bytea) AND {matching}
{order}
LIMIT CAST(:limit AS bigint)
