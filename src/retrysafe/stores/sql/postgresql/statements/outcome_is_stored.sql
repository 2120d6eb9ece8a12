-- Whether this very outcome was kept before, under this token: a finish whose acknowledgement was lost.
-- Arguments: id, token, state, status, headers, body, omitted
-- Columns: 1; no row when not
--
-- A statement of its own, because it must see what was committed while the one before it waited for the row.
SELECT 1 FROM retrysafe_records
WHERE id = CAST(:id AS bytea)
    AND token = CAST(:token AS bytea)
    AND state = CAST(:state AS text)
    AND status = CAST(:status AS integer)
    AND headers = CAST(:headers AS text)
    AND body = CAST(:body AS bytea)
    AND omitted = CAST(:omitted AS smallint)
