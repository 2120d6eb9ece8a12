-- Fragment, the columns of a record for an operator, then how it stands, the size of its body, and now.
-- Arguments: bodies
-- The table is called `record` wherever this stands.
--
-- Without bodies each is empty, and not read: its length is known without it.  One that is missing stays so,
-- because it is damage that is to be told.
{record_columns}, record.status, record.headers,
CASE
    WHEN CAST(:bodies AS integer) = 1 THEN record.body
    WHEN record.body IS NOT NULL THEN CAST('' AS bytea)
END,
record.omitted, {effective_state}, coalesce(octet_length(record.body), 0), date_part('epoch', {now})
