-- What operators did, the latest first; to records with ids from low to high, if these are given.
-- Arguments: low, high, limit
-- Columns: at, by, reason, act, outcome, id, key, scope, action, target, request_id
SELECT date_part('epoch', at), by, reason, act, outcome, id, key, scope, action, target, request_id
FROM retrysafe_audit
WHERE CAST(:low AS bytea) IS NULL OR id BETWEEN CAST(:low AS bytea) AND CAST(:high AS bytea)
ORDER BY entry DESC
LIMIT CAST(:limit AS bigint)
