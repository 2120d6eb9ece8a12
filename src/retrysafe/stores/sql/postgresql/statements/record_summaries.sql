-- Fragment, every record as statistics need it; how it stands is a number, because it is compared often:
-- 1 abandoned, 2 in_progress, 3 completed, 4 failed, 5 expired, 0 in an unknown state.
--
-- The length of a body is known without fetching it.
SELECT
    record.action, record.target, record.scope, record.created_at,
    coalesce(octet_length(record.body), 0) AS size,
    CASE
        WHEN {expired} THEN 5
        WHEN {abandoned} THEN 1
        WHEN record.state = 'in_progress' THEN 2
        WHEN record.state = 'completed' THEN 3
        WHEN record.state = 'failed' THEN 4
        ELSE 0
    END AS state_number
FROM retrysafe_records AS record
