-- Fragment, what an operator has to look at: the abandoned, the oldest of them first; then the youngest.
-- The table is called `record` wherever this stands.
ORDER BY
    CASE WHEN {abandoned} THEN 0 ELSE 1 END,
    CASE WHEN {abandoned} THEN record.created_at END,
    record.created_at DESC
