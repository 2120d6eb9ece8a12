-- Fragment, what a group of records comes to: see standings.sql.
count(*) FILTER (WHERE standing = 1), count(*) FILTER (WHERE standing = 2),
count(*) FILTER (WHERE standing = 3), count(*) FILTER (WHERE standing = 4),
CAST(sum(size) AS bigint)
