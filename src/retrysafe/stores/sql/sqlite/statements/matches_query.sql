-- Fragment, true for a record that an operator asks for and that has not expired.
-- Arguments: states, door, scope, part, target, prefix, older, younger, key, now
--
-- An argument that is NULL excludes nothing.  States and scope are JSON arrays, the scope's of parts as
-- the scope column has them.  A scope that is not JSON has no parts, and does not make the statement fail for
-- all.  `part` is the text of one of them, so that most rows need not be taken apart.
({expired}) IS NOT TRUE
AND (:states IS NULL OR {effective_state} IN (SELECT value FROM json_each(:states)))
AND (:door IS NULL OR door = :door)
AND (:target IS NULL OR target = :target)
AND (:prefix IS NULL OR substr(target, 1, length(:prefix)) = :prefix)
AND (:older IS NULL OR created_at <= :now - :older)
AND (:younger IS NULL OR created_at >= :now - :younger)
AND (:key IS NULL OR key = :key)
AND (
    :scope IS NULL
    OR (
        instr(scope, :part) > 0
        AND NOT EXISTS (
            SELECT 1 FROM json_each(:scope) AS wanted
            WHERE wanted.value NOT IN (
                SELECT value FROM json_each(CASE WHEN json_valid(scope) THEN scope ELSE '[]' END)
            )
        )
    )
)
