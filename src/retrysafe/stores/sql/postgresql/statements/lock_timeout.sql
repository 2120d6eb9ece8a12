-- Fragment, always true: from here on this transaction waits for no row longer than `patience` seconds.
-- Arguments: patience
--
-- It stands among the conditions of a statement, so it has been said before a row is waited for, costs no
-- round trip, ends with the transaction, and works behind a pooler that gives every transaction another
-- session.  Zero would mean for ever.
set_config(
    'lock_timeout',
    CAST(CAST(least(greatest(CAST(:patience AS float8) * 1000, 1), 2147483647) AS integer) AS text),
    true
) IS NOT NULL
