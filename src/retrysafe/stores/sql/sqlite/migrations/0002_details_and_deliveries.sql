-- What callbacks and operations say of a record besides, how often it was asked for, and what its retention is
-- counted from.
--
-- Every column has a default, or may be NULL: a service of the release before goes on writing rows without them.

ALTER TABLE retrysafe_records ADD COLUMN details TEXT NOT NULL DEFAULT '[]';  -- JSON: [["run","9"]]

ALTER TABLE retrysafe_records ADD COLUMN retention_from TEXT NOT NULL DEFAULT 'creation';  -- creation, update

ALTER TABLE retrysafe_records ADD COLUMN deliveries INTEGER NOT NULL DEFAULT 1;  -- requests with this key so far

ALTER TABLE retrysafe_records ADD COLUMN seen_at REAL;  -- the last of them; NULL: there was only the first

-- The last 20 of them, in seconds since the epoch, each 14 characters long and followed by a space: so the oldest are cut off by their number.
ALTER TABLE retrysafe_records ADD COLUMN delivery_times TEXT;

-- Everything about one run or one workflow.  Partial, so that requests do not pay for it.
CREATE INDEX IF NOT EXISTS retrysafe_records_subject ON retrysafe_records (target) WHERE door <> 'request';

INSERT INTO retrysafe_meta (name, value) VALUES ('migration', 2)
ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value);
