-- Delete a running record: its effect is known not to have happened.
--
-- Keys: armed, ids, due, the record
-- Arguments: 1 token
-- Result: 1 if it was deleted, else 0
--
-- Atomic, as every script, and fenced by the token.
local head = redis.call('HGET', KEYS[4], 's')
if not head or is_damaged(head) or string.byte(head, 2) ~= RUNNING or token_of(head) ~= ARGV[1] then
    return 0
end
redis.call('DEL', KEYS[4])
redis.call('ZREM', KEYS[2], id_of(KEYS[4]))
redis.call('ZREM', KEYS[3], id_of(KEYS[4]))
return 1
