-- Reserve a key that has no record, or whose record has expired; else return the record.
-- Arguments: id, token, fingerprint, mode, lease, retention, hold, door, scope, key, action, target,
--            request_id, correlation_id, patience
-- Columns: attempt; or NULL, and then those of a record, then now; no row when the key was reserved
--          while this statement ran, and then looking again tells whose
--
-- Atomic as one statement on one row: the primary key lets one of many inserts through, and the expired
-- record is replaced by the same statement that found it expired.  Every column is set again, so nothing
-- of the old record remains.
--
-- It looks first.  Where something is found, nothing is inserted, so a replay takes no lock and writes
-- nothing, and still there is one round trip.
WITH found AS MATERIALIZED (
    SELECT {record_columns}, record.status, record.headers, record.body, record.omitted, date_part('epoch', {now})
    FROM retrysafe_records AS record
    WHERE record.id = CAST(:id AS bytea) AND ({expired}) IS NOT TRUE
),
claimed AS (
    INSERT INTO retrysafe_records AS record (
        {columns}, status, headers, body, omitted
    )
    SELECT
        1, CAST(:id AS bytea), CAST(:token AS bytea), CAST(:fingerprint AS bytea),
        'in_progress', CAST(:mode AS text), 1, {now} + CAST(:lease AS float8) * interval '1 second', 0,
        CAST(:door AS text), CAST(:scope AS text), CAST(:key AS text), CAST(:action AS text),
        CAST(:target AS text), CAST(:request_id AS text), CAST(:correlation_id AS text),
        {now}, {now}, NULL,
        {now} + CAST(:retention AS float8) * interval '1 second',
        {now} + CAST(:hold AS float8) * interval '1 second',
        NULL, NULL, NULL, 0
    WHERE NOT EXISTS (SELECT FROM found) AND {lock_timeout} AND {durable_commit}
    ON CONFLICT (id) DO UPDATE SET
        version = excluded.version,
        token = excluded.token,
        fingerprint = excluded.fingerprint,
        state = excluded.state,
        mode = excluded.mode,
        attempt = excluded.attempt,
        lease_until = excluded.lease_until,
        checkpointed = excluded.checkpointed,
        door = excluded.door,
        scope = excluded.scope,
        key = excluded.key,
        action = excluded.action,
        target = excluded.target,
        request_id = excluded.request_id,
        correlation_id = excluded.correlation_id,
        created_at = excluded.created_at,
        updated_at = excluded.updated_at,
        completed_at = excluded.completed_at,
        expires_at = excluded.expires_at,
        held_until = excluded.held_until,
        status = excluded.status,
        headers = excluded.headers,
        body = excluded.body,
        omitted = excluded.omitted
    WHERE {expired}
    RETURNING record.attempt
)
SELECT CAST(NULL AS integer), found.* FROM found
UNION ALL
SELECT
    claimed.attempt,
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM claimed
