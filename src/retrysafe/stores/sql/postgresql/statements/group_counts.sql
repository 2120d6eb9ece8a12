-- Fragment, what a group of records comes to: see record_summaries.sql.
count(*) FILTER (WHERE state_number = 1), count(*) FILTER (WHERE state_number = 2),
count(*) FILTER (WHERE state_number = 3), count(*) FILTER (WHERE state_number = 4),
CAST(sum(size) AS bigint)
