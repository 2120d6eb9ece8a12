-- Whether this very outcome was kept before, under this token: a finish whose acknowledgement was lost.
-- Arguments: id, token, state, status, headers, body, omitted
-- Columns: 1; no row when not
SELECT 1 FROM retrysafe_records
WHERE id = :id AND token = :token AND state = :state
    AND status = :status AND headers = :headers AND body = :body AND omitted = :omitted
