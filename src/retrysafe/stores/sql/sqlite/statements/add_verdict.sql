-- Add to the number of requests that ended with a verdict.
-- Arguments: verdict, count, now
--
-- Atomic as one statement on one row, so that the counts of several processes add up.
INSERT INTO retrysafe_verdicts (verdict, count, since) VALUES (:verdict, :count, :now)
ON CONFLICT (verdict) DO UPDATE SET count = count + excluded.count
