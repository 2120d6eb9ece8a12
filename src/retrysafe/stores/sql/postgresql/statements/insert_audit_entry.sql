-- Write a line of the audit trail.
-- Arguments: by, reason, act, outcome, id, key, scope, action, target, request_id
-- Columns: entry, its number
--
-- It stands in the transaction of the act that it tells of: there is neither without the other.
INSERT INTO retrysafe_audit (at, by, reason, act, outcome, id, key, scope, action, target, request_id)
VALUES (
    {now}, CAST(:by AS text), CAST(:reason AS text), CAST(:act AS text), CAST(:outcome AS text),
    CAST(:id AS bytea), CAST(:key AS text), CAST(:scope AS text), CAST(:action AS text),
    CAST(:target AS text), CAST(:request_id AS text)
)
RETURNING entry
