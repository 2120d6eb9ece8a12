-- The tables.  What is there already is left as it is.
--
-- The server commits each of these statements by itself, so that a creation that broke off is taken up again:
-- retrysafe_meta comes first, and has no version until everything else exists.
--
-- InnoDB, because nothing else is atomic here.  Text is compared byte by byte, apart from spaces at its end; identity,
-- token and fingerprint are bytes, and VARBINARY, because BINARY would fill up what is shorter.  No column is shorter than what it may have to hold, because a server whose mode is
-- not strict would cut it off.
-- Two secondary indexes: on the expiry, which finishing in time never touches, and on what is due to a worker.
-- No CHECK constraints: a row that a newer release wrote is refused when it is read, not when it is written.

-- schema is the version of these tables.
CREATE TABLE IF NOT EXISTS retrysafe_meta (
    name  VARCHAR(64) NOT NULL,
    value VARCHAR(255) NOT NULL,
    PRIMARY KEY (name)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- What operators did, by whom and why.  Never purged, because it is small, and it is what is asked for years
-- later.
CREATE TABLE IF NOT EXISTS retrysafe_audit (
    entry      BIGINT NOT NULL AUTO_INCREMENT,  -- the order in which things were done
    at         DATETIME(6) NOT NULL,
    `by`       MEDIUMTEXT NOT NULL,
    reason     MEDIUMTEXT NOT NULL,
    act        VARCHAR(32) NOT NULL,            -- release, resolve, redrive, purge
    outcome    MEDIUMTEXT NOT NULL,
    id         VARBINARY(32),                   -- of the record; NULL when not about one
    `key`      MEDIUMTEXT,
    scope      MEDIUMTEXT NOT NULL,             -- JSON, as that of a record
    action     MEDIUMTEXT NOT NULL,
    target     MEDIUMTEXT NOT NULL,
    request_id MEDIUMTEXT NOT NULL,
    PRIMARY KEY (entry)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- How many requests ended how, since when.  Services add to it every few seconds.
CREATE TABLE IF NOT EXISTS retrysafe_verdicts (
    verdict VARCHAR(64) NOT NULL,
    count   BIGINT NOT NULL,
    since   DATETIME(6) NOT NULL,
    PRIMARY KEY (verdict)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- How many calls of which route ended how.
CREATE TABLE IF NOT EXISTS retrysafe_routes (
    door    VARCHAR(32) NOT NULL,    -- request, callback, operation
    route   VARCHAR(300) NOT NULL,   -- template of a path, or action of an operation; empty where it is not known
    source  VARCHAR(300) NOT NULL,   -- of callbacks; empty for others
    verdict VARCHAR(64) NOT NULL,
    count   BIGINT NOT NULL,
    since   DATETIME(6) NOT NULL,    -- when the first of them was counted
    seen_at DATETIME(6) NOT NULL,    -- when the last of them was counted
    PRIMARY KEY (door, route, source, verdict)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS retrysafe_records (
    id             VARBINARY(32) NOT NULL,   -- SHA-256 of door, scope and key
    version        SMALLINT NOT NULL,        -- of the meaning of this row
    token          VARBINARY(64) NOT NULL,   -- of the attempt that holds the key, the fence
    fingerprint    VARBINARY(64) NOT NULL,
    state          VARCHAR(32) NOT NULL,     -- in_progress, completed, failed
    mode           VARCHAR(32) NOT NULL,     -- lease, tx
    attempt        INT NOT NULL,             -- from 1
    lease_until    DATETIME(6),              -- NULL means lost, and counts as alive until expires_at
    checkpointed   SMALLINT NOT NULL,        -- 1 when bytes of the response have left
    door           VARCHAR(32) NOT NULL,     -- request, callback, operation
    scope          MEDIUMTEXT NOT NULL,      -- JSON, an array of pairs such as ["tenant","7"]
    `key`          MEDIUMTEXT,               -- NULL when only its digest may be stored
    action         MEDIUMTEXT NOT NULL,      -- method, or action of an operation
    target         MEDIUMTEXT NOT NULL,      -- path, or target of an operation
    request_id     MEDIUMTEXT NOT NULL,      -- of the first attempt
    correlation_id MEDIUMTEXT,
    created_at     DATETIME(6) NOT NULL,     -- in UTC, by the server's clock, as all times here
    updated_at     DATETIME(6) NOT NULL,
    completed_at   DATETIME(6),
    expires_at     DATETIME(6) NOT NULL,
    held_until     DATETIME(6) NOT NULL,     -- an abandoned attempt blocks its key until then
    details        MEDIUMTEXT NOT NULL,      -- JSON, an array of pairs
    retention_from VARCHAR(32) NOT NULL,     -- creation, update
    deliveries     INT NOT NULL,             -- requests with this key so far
    seen_at        DATETIME(6),              -- the last of them; NULL, there was only the first
    delivery_times TEXT,                     -- the last 20, in seconds since the epoch, each of 14 characters and a space
    status         INT,
    headers        MEDIUMTEXT,               -- JSON, an array of pairs such as ["content-type","text/plain"]
    body           LONGBLOB,
    omitted        SMALLINT NOT NULL,        -- 1 when status and headers stand for a response that was not stored
    payload        LONGBLOB,                 -- what was delivered
    due_at         DATETIME(6),              -- NULL: no worker may handle it
    PRIMARY KEY (id),
    KEY retrysafe_records_expires_at (expires_at),
    KEY retrysafe_records_due_at (due_at)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

INSERT INTO retrysafe_meta (name, value)
SELECT 'schema', '1' FROM DUAL
WHERE NOT EXISTS (SELECT 1 FROM retrysafe_meta AS meta WHERE meta.name = 'schema')
ON DUPLICATE KEY UPDATE name = retrysafe_meta.name;
