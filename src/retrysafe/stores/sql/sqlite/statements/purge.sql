-- Remove some expired records, the oldest first.
-- Arguments: limit, now
-- Columns: state, then those of a record; of one that is not in progress the answer is left out, because it is
--          only counted and its body may be large
--
-- Atomic as one statement: what it finds expired it removes, and nothing comes between, so a record that was
-- claimed anew is never among them.
DELETE FROM retrysafe_records
WHERE rowid IN (
    SELECT rowid FROM retrysafe_records
    WHERE {expired}
    ORDER BY expires_at
    LIMIT :limit
)
RETURNING
    state, {columns},
    CASE state WHEN 'in_progress' THEN status END,
    CASE state WHEN 'in_progress' THEN headers END,
    NULL,
    omitted
