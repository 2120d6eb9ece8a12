-- Fragment, what a group of records comes to: see standings.sql.
sum(standing = 1), sum(standing = 2), sum(standing = 3), sum(standing = 4), sum(size)
