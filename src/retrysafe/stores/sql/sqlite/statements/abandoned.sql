-- Records in progress whose lease has ended, the oldest first: what an operator has to look at.
-- Arguments: limit, now
-- Columns: those of a record
--
-- It walks through the table: operators ask rarely, and an index for them would cost every request.
SELECT {columns}, status, headers, body, omitted
FROM retrysafe_records
WHERE state = 'in_progress' AND lease_until <= :now AND ({expired}) IS NOT TRUE
ORDER BY created_at
LIMIT :limit
