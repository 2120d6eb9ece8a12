-- The payload of a delivery, stored beside its record, and from when on a worker may handle it.
--
-- Both may be NULL: a service of the release before goes on writing rows without them.

ALTER TABLE retrysafe_records ADD COLUMN payload BLOB;  -- what was delivered

ALTER TABLE retrysafe_records ADD COLUMN due_at REAL;  -- NULL: no worker may handle it

-- What waits for a worker.  Partial, and its rows are few, so that requests do not pay for it.
CREATE INDEX IF NOT EXISTS retrysafe_records_due_at ON retrysafe_records (due_at) WHERE due_at IS NOT NULL;

INSERT INTO retrysafe_meta (name, value) VALUES ('migration', 3)
ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value);
