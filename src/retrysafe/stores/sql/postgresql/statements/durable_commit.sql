-- Fragment, always true: this commit is on disk before it is acknowledged, whatever the role or the database
-- has as its default.
--
-- Only `off` is overruled.  It stands among the conditions of a statement, as lock_timeout.sql does and for the same
-- reasons.
set_config(
    'synchronous_commit',
    CASE current_setting('synchronous_commit')
        WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit')
    END,
    true
) IS NOT NULL
