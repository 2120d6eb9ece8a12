-- Add to the numbers of requests that ended with each verdict.
-- Arguments: verdicts, patience
--
-- Verdicts are one JSON text, a number for each name.  Atomic as one statement, so that the counts of several
-- processes add up; always in the order of names, so that two of them do not wait for each other.
INSERT INTO retrysafe_verdicts AS total (verdict, count, since)
SELECT added.key, CAST(added.value AS bigint), {now}
FROM json_each_text(CAST(:verdicts AS json)) AS added
WHERE {lock_timeout}
ORDER BY added.key
ON CONFLICT (verdict) DO UPDATE SET count = total.count + excluded.count
