-- What callbacks and operations say of a record besides, how often it was asked for, and what its retention is
-- counted from.
--
-- Every column has a default, or may be NULL, which the server does not write into the rows that exist, so this
-- takes no time; and a service of the release before goes on writing rows without them.

ALTER TABLE retrysafe_records ADD COLUMN IF NOT EXISTS details text NOT NULL DEFAULT '[]';  -- JSON, an array of pairs

ALTER TABLE retrysafe_records ADD COLUMN IF NOT EXISTS retention_from text NOT NULL DEFAULT 'creation';  -- creation, update

ALTER TABLE retrysafe_records ADD COLUMN IF NOT EXISTS deliveries integer NOT NULL DEFAULT 1;  -- requests with this key so far

ALTER TABLE retrysafe_records ADD COLUMN IF NOT EXISTS seen_at timestamptz;  -- the last of them; NULL, there was only the first

-- The last 20 of them, in seconds since the epoch, each 14 characters long and followed by a space, so that the oldest are cut off by their
-- number.
ALTER TABLE retrysafe_records ADD COLUMN IF NOT EXISTS delivery_times text;

-- Everything about one run or one workflow.  Partial, so that requests do not pay for it.
CREATE INDEX IF NOT EXISTS retrysafe_records_subject ON retrysafe_records (target) WHERE door <> 'request';

INSERT INTO retrysafe_meta (name, value) VALUES ('migration', '2')
ON CONFLICT (name) DO UPDATE SET value = CAST(greatest(
    CAST(retrysafe_meta.value AS integer), CAST(excluded.value AS integer)
) AS text);
