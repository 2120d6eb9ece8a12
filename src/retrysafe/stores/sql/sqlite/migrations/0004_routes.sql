-- How many calls of which route ended how.
--
-- Services of this release add to it every few seconds, in the place of retrysafe_verdicts, to which those of the
-- release before go on adding: how many calls ended how is the sum of both.

CREATE TABLE IF NOT EXISTS retrysafe_routes (
    door    TEXT NOT NULL,     -- request, callback, operation
    route   TEXT NOT NULL,     -- template of a path, or action of an operation; empty where it is not known
    source  TEXT NOT NULL,     -- of callbacks; empty for others
    verdict TEXT NOT NULL,
    count   INTEGER NOT NULL,
    since   REAL NOT NULL,     -- when the first of them was counted
    seen_at REAL NOT NULL,     -- when the last of them was counted
    PRIMARY KEY (door, route, source, verdict)
);

INSERT INTO retrysafe_meta (name, value) VALUES ('migration', 4)
ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value);
