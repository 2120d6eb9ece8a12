-- What there is.
-- Arguments: now
-- Columns: records abandoned, in_progress, completed, failed, and bytes of their bodies; records expired, and
--          in an unknown state; when the oldest in progress and the oldest abandoned were made; now
--
-- It walks through the table once and loads no body.
SELECT
    coalesce(sum(standing = 1), 0),
    coalesce(sum(standing = 2), 0),
    coalesce(sum(standing = 3), 0),
    coalesce(sum(standing = 4), 0),
    coalesce(sum(CASE WHEN standing BETWEEN 1 AND 4 THEN size END), 0),
    coalesce(sum(standing = 5), 0),
    coalesce(sum(standing = 0), 0),
    min(CASE WHEN standing = 2 THEN created_at END),
    min(CASE WHEN standing = 1 THEN created_at END),
    :now
FROM ({standings})
