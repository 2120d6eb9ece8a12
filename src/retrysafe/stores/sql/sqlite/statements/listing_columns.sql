-- Fragment, the columns of a record for an operator, then how it stands, the size of its body, and now.
-- Arguments: bodies, now
--
-- Without bodies each is empty, and not read: its length is known without it.  One that is missing or no
-- bytes stays so, because it is damage that is to be told.
{columns}, status, headers,
CASE WHEN :bodies THEN body WHEN typeof(body) = 'blob' THEN x'' WHEN typeof(body) = 'text' THEN '' ELSE body
END, omitted, {effective_state}, coalesce(length(body), 0), :now
