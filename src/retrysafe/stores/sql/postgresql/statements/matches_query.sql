-- Fragment, true for a record that an operator asks for and that has not expired.
-- Arguments: states, door, scope, part, target, prefix, older, younger, key
-- The table is called `record` wherever this stands.
--
-- An argument that is NULL excludes nothing.  States and scope are JSON arrays, the scope's of parts as the
-- scope column has them.  JSON is not parsed here: a scope that is none would make the statement fail for all,
-- and so would a zero character in one.  The parts are pairs of strings, and a pattern takes them out one
-- after the other.  `part` is the text of one of them, so that most rows need not be taken apart.
({expired}) IS NOT TRUE
AND (CAST(:states AS text) IS NULL OR strpos(CAST(:states AS text), '"' || {effective_state} || '"') > 0)
AND (CAST(:door AS text) IS NULL OR record.door = CAST(:door AS text))
AND (CAST(:target AS text) IS NULL OR record.target = CAST(:target AS text))
AND (CAST(:prefix AS text) IS NULL OR starts_with(record.target, CAST(:prefix AS text)))
AND (
    CAST(:older AS float8) IS NULL
    OR date_part('epoch', record.created_at) <= date_part('epoch', {now}) - CAST(:older AS float8)
)
AND (
    CAST(:younger AS float8) IS NULL
    OR date_part('epoch', record.created_at) >= date_part('epoch', {now}) - CAST(:younger AS float8)
)
AND (CAST(:key AS text) IS NULL OR record.key = CAST(:key AS text))
AND (
    CAST(:scope AS text) IS NULL
    OR (
        strpos(record.scope, CAST(:part AS text)) > 0
        AND NOT EXISTS (
            SELECT pair[1]
            FROM regexp_matches(CAST(:scope AS text), '(\["([^"\\]|\\.)*","([^"\\]|\\.)*"\])', 'g') AS pair
            EXCEPT
            SELECT pair[1]
            FROM regexp_matches(record.scope, '(\["([^"\\]|\\.)*","([^"\\]|\\.)*"\])', 'g') AS pair
        )
    )
)
