-- How many calls of which route ended how.
--
-- Services of this release add to it every few seconds, in the place of retrysafe_verdicts, to which those of the
-- release before go on adding: how many calls ended how is the sum of both.

CREATE TABLE IF NOT EXISTS retrysafe_routes (
    door    text NOT NULL,          -- request, callback, operation
    route   text NOT NULL,          -- template of a path, or action of an operation; empty where it is not known
    source  text NOT NULL,          -- of callbacks; empty for others
    verdict text NOT NULL,
    count   bigint NOT NULL,
    since   timestamptz NOT NULL,   -- when the first of them was counted
    seen_at timestamptz NOT NULL,   -- when the last of them was counted
    PRIMARY KEY (door, route, source, verdict)
);

INSERT INTO retrysafe_meta (name, value) VALUES ('migration', '5')
ON CONFLICT (name) DO UPDATE SET value = CAST(greatest(
    CAST(retrysafe_meta.value AS integer), CAST(excluded.value AS integer)
) AS text);
