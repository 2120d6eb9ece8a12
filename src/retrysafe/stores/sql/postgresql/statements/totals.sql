-- What there is.
-- Columns: records abandoned, in_progress, completed, failed, and bytes of their bodies; records expired, and
--          in an unknown state; when the oldest in progress and the oldest abandoned were made; now
--
-- It walks through the table once and loads no body.
SELECT
    count(*) FILTER (WHERE state_number = 1),
    count(*) FILTER (WHERE state_number = 2),
    count(*) FILTER (WHERE state_number = 3),
    count(*) FILTER (WHERE state_number = 4),
    CAST(coalesce(sum(size) FILTER (WHERE state_number BETWEEN 1 AND 4), 0) AS bigint),
    count(*) FILTER (WHERE state_number = 5),
    count(*) FILTER (WHERE state_number = 0),
    date_part('epoch', min(created_at) FILTER (WHERE state_number = 2)),
    date_part('epoch', min(created_at) FILTER (WHERE state_number = 1)),
    date_part('epoch', {now})
FROM ({record_summaries}) AS every
