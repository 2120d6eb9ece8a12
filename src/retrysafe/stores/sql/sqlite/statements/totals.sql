-- What there is.
-- Arguments: now
-- Columns: records abandoned, in_progress, completed, failed, and bytes of their bodies; records expired, and
--          in an unknown state; when the oldest in progress and the oldest abandoned were made; now
--
-- It walks through the table once and loads no body.
SELECT
    coalesce(sum(state_number = 1), 0),
    coalesce(sum(state_number = 2), 0),
    coalesce(sum(state_number = 3), 0),
    coalesce(sum(state_number = 4), 0),
    coalesce(sum(CASE WHEN state_number BETWEEN 1 AND 4 THEN size END), 0),
    coalesce(sum(state_number = 5), 0),
    coalesce(sum(state_number = 0), 0),
    min(CASE WHEN state_number = 2 THEN created_at END),
    min(CASE WHEN state_number = 1 THEN created_at END),
    :now
FROM ({record_summaries})
