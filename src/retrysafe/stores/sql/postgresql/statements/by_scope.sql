-- Scopes with the most records, the expired ones aside.
-- Arguments: groups
-- Columns: scope, then records abandoned, in_progress, completed, failed, and bytes of their bodies
--
-- It walks through the table once and loads no body.
SELECT scope, {group_counts}
FROM ({record_summaries}) AS every
WHERE state_number BETWEEN 1 AND 4
GROUP BY scope
ORDER BY count(*) DESC, scope
LIMIT CAST(:groups AS bigint)
