-- The tables.  What is there already is left as it is.  They come to be in the first schema of the search path,
-- as any table does.
--
-- fillfactor: a record is written small and grows once, when it is finished.  A third of each page is left
-- free for that, so that the finished row stays on its page and no index is touched (a HOT update).
-- One secondary index, on the expiry: finishing in time never touches it.
-- No CHECK constraints: a row that a newer release wrote is refused when it is read, not when it is written.

CREATE TABLE IF NOT EXISTS retrysafe_records (
    id             bytea PRIMARY KEY,        -- SHA-256 of door, scope and key
    version        smallint NOT NULL,        -- of the meaning of this row
    token          bytea NOT NULL,           -- of the attempt that holds the key, the fence
    fingerprint    bytea NOT NULL,
    state          text NOT NULL,            -- in_progress, completed, failed
    mode           text NOT NULL,            -- lease, tx
    attempt        integer NOT NULL,         -- from 1
    lease_until    timestamptz,              -- NULL means lost, and counts as alive until expires_at
    checkpointed   smallint NOT NULL,        -- 1 when bytes of the response have left
    door           text NOT NULL,            -- request, callback, operation
    scope          text NOT NULL,            -- JSON, an array of pairs such as ["tenant","7"]
    key            text,                     -- NULL when only its digest may be stored
    action         text NOT NULL,            -- method, or action of an operation
    target         text NOT NULL,            -- path, or target of an operation
    request_id     text NOT NULL,            -- of the first attempt
    correlation_id text,
    created_at     timestamptz NOT NULL,     -- by the server's clock, as all times here
    updated_at     timestamptz NOT NULL,
    completed_at   timestamptz,
    expires_at     timestamptz NOT NULL,
    held_until     timestamptz NOT NULL,     -- an abandoned attempt blocks its key until then
    status         integer,
    headers        text,                     -- JSON, an array of pairs such as ["content-type","text/plain"]
    body           bytea,
    omitted        smallint NOT NULL         -- 1 when status and headers stand for a response that was not stored
) WITH (fillfactor = 67);

CREATE INDEX IF NOT EXISTS retrysafe_records_expires_at ON retrysafe_records (expires_at);

-- schema is the version of these tables.
CREATE TABLE IF NOT EXISTS retrysafe_meta (
    name  text PRIMARY KEY,
    value text NOT NULL
);

INSERT INTO retrysafe_meta (name, value) VALUES ('schema', '1') ON CONFLICT (name) DO NOTHING;

-- What operators did, by whom and why.  Never purged, because it is small, and it is what is asked for years
-- later.
CREATE TABLE IF NOT EXISTS retrysafe_audit (
    entry      bigserial PRIMARY KEY,        -- the order in which things were done
    at         timestamptz NOT NULL,
    by         text NOT NULL,
    reason     text NOT NULL,
    act        text NOT NULL,                -- release, resolve, purge
    outcome    text NOT NULL,
    id         bytea,                        -- of the record; NULL when not about one
    key        text,
    scope      text NOT NULL,                -- JSON, as that of a record
    action     text NOT NULL,
    target     text NOT NULL,
    request_id text NOT NULL
);

-- How many requests ended how, since when.  Services add to it every few seconds.
CREATE TABLE IF NOT EXISTS retrysafe_verdicts (
    verdict text PRIMARY KEY,
    count   bigint NOT NULL,
    since   timestamptz NOT NULL
);
