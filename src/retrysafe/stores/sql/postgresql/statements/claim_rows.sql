-- Fragment, the claims of a batch as a table: id, token, lease, announced.
-- Arguments: claims
--
-- They come as one JSON text, [[id, token, lease, announced], ...] with bytes in hexadecimal, which every
-- driver can send.  The length that is asked for excludes nothing, but lets the planner expect few rows, so that
-- it looks each of them up by its id, even in a table that was never analysed.
SELECT
    decode(value ->> 0, 'hex') AS id,
    decode(value ->> 1, 'hex') AS token,
    CAST(value ->> 2 AS float8) AS lease,
    CAST(value ->> 3 AS integer) AS announced
FROM json_array_elements(CAST(:claims AS json)) AS element (value)
WHERE json_array_length(value) = 4
