-- What operators did, the latest first; to records with ids from low to high, if these are given.
-- Arguments: low, high, limit
-- Columns: at, by, reason, act, outcome, id, key, scope, action, target, request_id
SELECT at, by, reason, act, outcome, id, key, scope, action, target, request_id
FROM retrysafe_audit
WHERE :low IS NULL OR id BETWEEN :low AND :high
ORDER BY entry DESC
LIMIT :limit
