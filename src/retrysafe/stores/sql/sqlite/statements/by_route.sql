-- Actions and targets with the most records, the expired ones aside.
-- Arguments: groups, now
-- Columns: action, target, then records abandoned, in_progress, completed, failed, and bytes of their bodies
--
-- It walks through the table once; SQLite sorts on disk what does not fit its cache.
SELECT action, target, {group_counts}
FROM ({record_summaries})
WHERE state_number BETWEEN 1 AND 4
GROUP BY action, target
ORDER BY count(*) DESC, action, target
LIMIT :groups
