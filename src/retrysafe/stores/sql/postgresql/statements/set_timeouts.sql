-- From here on, a statement of this transaction takes no longer than so many seconds, and waits for a lock no
-- longer than `patience`; and what it commits is on disk before it is acknowledged.
-- Arguments: seconds, patience
-- Columns: 1, then nothing of interest
--
-- It ends with the transaction, and so works behind a pooler that gives every transaction another session.
SELECT 1, set_config(
    'statement_timeout',
    CAST(CAST(least(greatest(CAST(:seconds AS float8) * 1000, 1), 2147483647) AS integer) AS text),
    true
)
WHERE {lock_timeout} AND {durable_commit}
