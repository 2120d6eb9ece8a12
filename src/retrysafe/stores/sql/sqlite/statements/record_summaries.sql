-- Fragment, every record as statistics need it; how it stands is a number, because it is compared often:
-- 1 abandoned, 2 in_progress, 3 completed, 4 failed, 5 expired, 0 in an unknown state.
-- Arguments: now
--
-- LIMIT -1 excludes nothing, but keeps SQLite from merging this with the query around it, which would carry
-- whole bodies through a sort and judge each record once for every column of the result.
SELECT
    action, target, scope, created_at, coalesce(length(body), 0) AS size,
    CASE
        WHEN {expired} THEN 5
        WHEN {abandoned} THEN 1
        WHEN state = 'in_progress' THEN 2
        WHEN state = 'completed' THEN 3
        WHEN state = 'failed' THEN 4
        ELSE 0
    END AS state_number
FROM retrysafe_records
LIMIT -1
