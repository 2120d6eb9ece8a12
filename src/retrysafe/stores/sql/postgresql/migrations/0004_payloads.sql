-- The payload of a delivery, stored beside its record, and from when on a worker may handle it.
--
-- Both may be NULL, which the server does not write into the rows that exist, so this takes no time; and a service
-- of the release before goes on writing rows without them.

ALTER TABLE retrysafe_records ADD COLUMN IF NOT EXISTS payload bytea;  -- what was delivered

ALTER TABLE retrysafe_records ADD COLUMN IF NOT EXISTS due_at timestamptz;  -- NULL: no worker may handle it

-- What waits for a worker.  Partial, and its rows are few, so that requests do not pay for it.
CREATE INDEX IF NOT EXISTS retrysafe_records_due_at ON retrysafe_records (due_at) WHERE due_at IS NOT NULL;

-- The function of migration 3, for the columns of this one.  Its claims bring no payload, so in the place of an expired
-- record there is none, and a record that is due does not expire.  Services of both releases call it, so its arguments
-- and columns are as they were.
CREATE OR REPLACE FUNCTION retrysafe_batch_1(
    patience float8,
    reserve_place integer[],
    reserve_id bytea[],
    reserve_token bytea[],
    reserve_fingerprint bytea[],
    reserve_mode text[],
    reserve_lease float8[],
    reserve_retention float8[],
    reserve_hold float8[],
    reserve_door text[],
    reserve_scope text[],
    reserve_key text[],
    reserve_action text[],
    reserve_target text[],
    reserve_request_id text[],
    reserve_correlation_id text[],
    reserve_details text[],
    reserve_retention_from text[],
    finish_place integer[],
    finish_id bytea[],
    finish_token bytea[],
    finish_state text[],
    finish_status integer[],
    finish_headers text[],
    finish_body bytea[],
    finish_omitted integer[],
    finish_details text[],
    finish_announced integer[]
)
RETURNS TABLE (
    place integer,
    done integer,  -- the number of the attempt, or 1; NULL, and then the record that is there
    version smallint,
    id bytea,
    token bytea,
    fingerprint bytea,
    state text,
    mode text,
    attempt integer,
    lease_until float8,
    checkpointed smallint,
    door text,
    scope text,
    key text,
    action text,
    target text,
    request_id text,
    correlation_id text,
    created_at float8,
    updated_at float8,
    completed_at float8,
    expires_at float8,
    held_until float8,
    details text,
    retention_from text,
    deliveries integer,
    seen_at float8,
    delivery_times text,
    status integer,
    headers text,
    body bytea,
    omitted smallint,
    at float8
)
LANGUAGE plpgsql
SECURITY INVOKER
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $batch$
#variable_conflict use_column
DECLARE
    present timestamptz := statement_timestamp();
    found_ids bytea[] := '{}';
    found_records retrysafe_records[];
BEGIN
    IF cardinality(reserve_id) > 0 THEN
        found_records := ARRAY(
            SELECT there
            FROM retrysafe_records AS there
            WHERE there.id = ANY (reserve_id) AND (
                there.version = 1
                AND there.expires_at <= present
                AND there.due_at IS NULL
                AND (
                    there.state IN ('completed', 'failed')
                    OR (
                        there.state = 'in_progress'
                        AND there.held_until <= present
                        AND coalesce(there.lease_until, there.expires_at) <= present
                    )
                )
            ) IS NOT TRUE
        );
        IF cardinality(found_records) > 0 THEN
            found_ids := ARRAY(SELECT there.id FROM unnest(found_records) AS there);
            RETURN QUERY
            SELECT
                reserve_place[array_position(reserve_id, there.id)], CAST(NULL AS integer),
                there.version, there.id, there.token, there.fingerprint, there.state, there.mode, there.attempt,
                date_part('epoch', there.lease_until), there.checkpointed,
                there.door, there.scope, there.key, there.action, there.target, there.request_id,
                there.correlation_id,
                date_part('epoch', there.created_at), date_part('epoch', there.updated_at),
                date_part('epoch', there.completed_at), date_part('epoch', there.expires_at),
                date_part('epoch', there.held_until),
                there.details, there.retention_from, there.deliveries, date_part('epoch', there.seen_at),
                there.delivery_times, there.status, there.headers, there.body, there.omitted,
                date_part('epoch', present)
            FROM unnest(found_records) AS there;
        END IF;
    END IF;
    IF cardinality(reserve_id) = cardinality(found_ids) AND cardinality(finish_id) = 0 THEN
        RETURN;  -- nothing is written, so nothing is flushed
    END IF;

    PERFORM set_config('lock_timeout', CAST(CAST(
        least(greatest(patience * 1000, 1), 2147483647) AS integer
    ) AS text), true);
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;

    IF cardinality(reserve_id) > cardinality(found_ids) THEN
        RETURN QUERY
        WITH claimed AS (
            INSERT INTO retrysafe_records AS record (
                version, id, token, fingerprint, state, mode, attempt, lease_until, checkpointed,
                door, scope, key, action, target, request_id, correlation_id,
                created_at, updated_at, completed_at, expires_at, held_until,
                details, retention_from, deliveries, seen_at, delivery_times,
                status, headers, body, omitted
            )
            SELECT
                1, bid.id, bid.token, bid.fingerprint, 'in_progress', bid.mode, 1,
                present + bid.lease * interval '1 second', 0,
                bid.door, bid.scope, bid.key, bid.action, bid.target, bid.request_id, bid.correlation_id,
                present, present, NULL,
                present + bid.retention * interval '1 second', present + bid.hold * interval '1 second',
                bid.details, bid.retention_from, 1, NULL, NULL,
                NULL, NULL, NULL, 0
            FROM unnest(
                reserve_id, reserve_token, reserve_fingerprint, reserve_mode, reserve_lease, reserve_retention,
                reserve_hold, reserve_door, reserve_scope, reserve_key, reserve_action, reserve_target,
                reserve_request_id, reserve_correlation_id, reserve_details, reserve_retention_from
            ) AS bid (
                id, token, fingerprint, mode, lease, retention, hold, door, scope, key, action, target, request_id,
                correlation_id, details, retention_from
            )
            WHERE bid.id <> ALL (found_ids)
            ORDER BY bid.id
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
                details = excluded.details,
                retention_from = excluded.retention_from,
                deliveries = excluded.deliveries,
                seen_at = excluded.seen_at,
                delivery_times = excluded.delivery_times,
                status = excluded.status,
                headers = excluded.headers,
                body = excluded.body,
                omitted = excluded.omitted,
                payload = excluded.payload,
                due_at = excluded.due_at
            WHERE record.version = 1
                AND record.expires_at <= present
                AND record.due_at IS NULL
                AND (
                    record.state IN ('completed', 'failed')
                    OR (
                        record.state = 'in_progress'
                        AND record.held_until <= present
                        AND coalesce(record.lease_until, record.expires_at) <= present
                    )
                )
            RETURNING record.id, record.attempt
        )
        SELECT
            reserve_place[array_position(reserve_id, claimed.id)], claimed.attempt,
            NULL::smallint, NULL::bytea, NULL::bytea, NULL::bytea, NULL::text, NULL::text, NULL::integer,
            NULL::float8, NULL::smallint, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text,
            NULL::text, NULL::float8, NULL::float8, NULL::float8, NULL::float8, NULL::float8, NULL::text,
            NULL::text, NULL::integer, NULL::float8, NULL::text, NULL::integer, NULL::text, NULL::bytea,
            NULL::smallint, NULL::float8
        FROM claimed;
    END IF;

    IF cardinality(finish_id) > 0 THEN
        RETURN QUERY
        WITH finished AS (
            UPDATE retrysafe_records AS record SET
                state = final.state,
                completed_at = present,
                updated_at = present,
                status = final.status,
                headers = final.headers,
                body = final.body,
                omitted = final.omitted,
                details = final.details
            FROM (
                SELECT * FROM unnest(
                    finish_place, finish_id, finish_token, finish_state, finish_status, finish_headers, finish_body,
                    finish_omitted, finish_details, finish_announced
                ) AS each (place, id, token, state, status, headers, body, omitted, details, announced)
                ORDER BY each.id
            ) AS final
            WHERE record.id = ANY (finish_id)
                AND record.id = final.id
                AND record.token = final.token
                AND record.state = 'in_progress'
                AND (record.expires_at > present) IS TRUE
            RETURNING
                final.place,
                CASE WHEN final.announced = 1 THEN
                    CAST(pg_notify('retrysafe', encode(record.id, 'hex')) AS text)
                END AS told
        )
        SELECT
            finished.place, CASE WHEN finished.told IS NULL THEN 1 ELSE 1 END,
            NULL::smallint, NULL::bytea, NULL::bytea, NULL::bytea, NULL::text, NULL::text, NULL::integer,
            NULL::float8, NULL::smallint, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text,
            NULL::text, NULL::float8, NULL::float8, NULL::float8, NULL::float8, NULL::float8, NULL::text,
            NULL::text, NULL::integer, NULL::float8, NULL::text, NULL::integer, NULL::text, NULL::bytea,
            NULL::smallint, NULL::float8
        FROM finished;
    END IF;
END
$batch$;

INSERT INTO retrysafe_meta (name, value) VALUES ('migration', '4')
ON CONFLICT (name) DO UPDATE SET value = CAST(greatest(
    CAST(retrysafe_meta.value AS integer), CAST(excluded.value AS integer)
) AS text);
