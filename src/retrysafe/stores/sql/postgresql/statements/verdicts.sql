-- How requests ended, as the services counted.
-- Columns: verdict, count, since
SELECT verdict, count, date_part('epoch', since)
FROM retrysafe_verdicts
ORDER BY count DESC, verdict
