-- Extend a lease, counted from now.
--
-- Keys: armed, ids, due, the record
-- Arguments: 1 token; 2 lease
-- Result: 1, also if the record was settled under this token; 0 when fenced
--
-- Atomic, as every script, and fenced by the token.
local head = redis.call('HGET', KEYS[4], 's')
if not head or is_damaged(head) or token_of(head) ~= ARGV[1] then
    return 0
end
if string.byte(head, 2) == RUNNING then
    redis.call('HSET', KEYS[4], 's', string.sub(head, 1, 10) .. struct.pack('<d', now + ARGV[2]) .. string.sub(head, 19))
end
return 1
