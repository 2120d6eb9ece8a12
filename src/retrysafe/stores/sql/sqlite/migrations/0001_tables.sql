-- The tables.  What is there already is left as it is.
--
-- A rowid table: bodies may be large, and a tree of 32-byte keys with bodies in its leaves would be slow.
-- One secondary index, on the expiry: finishing in time never touches it.
-- No CHECK constraints: a row that a newer release wrote is refused when it is read, not when it is written.

CREATE TABLE IF NOT EXISTS retrysafe_records (
    id             BLOB PRIMARY KEY NOT NULL,  -- SHA-256 of door, scope and key
    version        INTEGER NOT NULL,           -- of the meaning of this row
    token          BLOB NOT NULL,              -- of the attempt that holds the key: the fence
    fingerprint    BLOB NOT NULL,
    state          TEXT NOT NULL,              -- in_progress, completed, failed
    mode           TEXT NOT NULL,              -- lease, tx
    attempt        INTEGER NOT NULL,           -- from 1
    lease_until    REAL,                       -- NULL: lost, and counts as alive until expires_at
    checkpointed   INTEGER NOT NULL,           -- 1: bytes of the response have left
    door           TEXT NOT NULL,              -- request, callback, operation
    scope          TEXT NOT NULL,              -- JSON: [["tenant","7"],["user","42"]]
    key            TEXT,                       -- NULL: only its digest may be stored
    action         TEXT NOT NULL,              -- method, or action of an operation
    target         TEXT NOT NULL,              -- path, or target of an operation
    request_id     TEXT NOT NULL,              -- of the first attempt
    correlation_id TEXT,
    created_at     REAL NOT NULL,              -- seconds since the epoch, by the store's clock; all of them
    updated_at     REAL NOT NULL,
    completed_at   REAL,
    expires_at     REAL NOT NULL,
    held_until     REAL NOT NULL,              -- an abandoned attempt blocks its key until then
    status         INTEGER,
    headers        TEXT,                       -- JSON: [["content-type","text/plain"]]
    body           BLOB,
    omitted        INTEGER NOT NULL            -- 1: status and headers stand for a response that was not stored
);

CREATE INDEX IF NOT EXISTS retrysafe_records_expires_at ON retrysafe_records (expires_at);

-- schema: version of these tables.  boot, offset, high_water: the host's clock, see clock.py.
CREATE TABLE IF NOT EXISTS retrysafe_meta (
    name  TEXT PRIMARY KEY NOT NULL,
    value NOT NULL
);

INSERT INTO retrysafe_meta (name, value) VALUES ('schema', 1) ON CONFLICT (name) DO NOTHING;

-- What operators did, by whom and why.  Never purged: it is small, and it is what is asked for years later.
CREATE TABLE IF NOT EXISTS retrysafe_audit (
    entry      INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL,  -- the order in which things were done
    at         REAL NOT NULL,
    by         TEXT NOT NULL,
    reason     TEXT NOT NULL,
    act        TEXT NOT NULL,                      -- release, resolve, purge
    outcome    TEXT NOT NULL,
    id         BLOB,                               -- of the record; NULL: not about one
    key        TEXT,
    scope      TEXT NOT NULL,                      -- JSON, as that of a record
    action     TEXT NOT NULL,
    target     TEXT NOT NULL,
    request_id TEXT NOT NULL
);

-- How many requests ended how, since when.  Services add to it every few seconds.
CREATE TABLE IF NOT EXISTS retrysafe_verdicts (
    verdict TEXT PRIMARY KEY NOT NULL,
    count   INTEGER NOT NULL,
    since   REAL NOT NULL
);
