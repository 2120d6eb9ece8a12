-- Scopes with the most records, the expired ones aside.
-- Arguments: groups, now
-- Columns: scope, then records abandoned, in_progress, completed, failed, and bytes of their bodies
--
-- It walks through the table once; SQLite sorts on disk what does not fit its cache.
SELECT scope, {shares}
FROM retrysafe_records
WHERE ({expired}) IS NOT TRUE
GROUP BY scope
ORDER BY count(*) DESC, scope
LIMIT :groups
