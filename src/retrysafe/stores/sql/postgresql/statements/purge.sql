-- Remove some expired records, the oldest first.
-- Arguments: limit
-- Columns: state, then those of a record; of one that is not in progress the answer is left out, because it is
--          only counted and its body may be large
--
-- Atomic as one statement: what it finds expired it locks and removes, and nothing comes between, so a record
-- that was claimed anew is never among them.  Rows that another transaction is removing or reserving are skipped,
-- so processes which clean up at the same moment share the work and do not wait.
--
-- No time lies before -infinity.  But with two bounds the planner expects few rows, and takes the index on the
-- expiry, even in a table that was never analysed.
DELETE FROM retrysafe_records AS record
WHERE record.ctid = ANY (ARRAY(
    SELECT record.ctid FROM retrysafe_records AS record
    WHERE {expired} AND record.expires_at >= '-infinity'
    ORDER BY record.expires_at
    LIMIT CAST(:limit AS integer)
    FOR UPDATE SKIP LOCKED
))
RETURNING
    record.state, {record_columns},
    CASE record.state WHEN 'in_progress' THEN record.status END,
    CASE record.state WHEN 'in_progress' THEN record.headers END,
    CAST(NULL AS bytea),
    record.omitted
