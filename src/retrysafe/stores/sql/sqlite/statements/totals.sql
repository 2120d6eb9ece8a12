-- How many records stand how, the expired ones among them.
-- Arguments: now
-- Columns: standing, records, bytes of their bodies, when the oldest was made
--
-- It walks through the table once and loads no body.
SELECT {standing} AS standing, count(*), coalesce(sum(length(body)), 0), min(created_at)
FROM retrysafe_records
GROUP BY 1
