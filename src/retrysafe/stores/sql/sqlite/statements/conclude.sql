-- Keep the outcome in a transaction of the caller's own.
-- Arguments: id, token, state, status, headers, body, omitted, now
-- Columns: 1; no row when fenced, or late
--
-- Atomic with whatever else that transaction has written.
{finish}
