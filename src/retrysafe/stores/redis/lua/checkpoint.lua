-- Note on a running record that a response begins to leave.
--
-- Keys: armed, ids, due, the record
-- Arguments: 1 token; 2 hold and retention; 3 status and headers
-- Result: 1; 0 when fenced
--
-- Atomic, as every script, and fenced by the token.
local head = redis.call('HGET', KEYS[4], 's')
if not head then
    return 0
end
if is_damaged(head) then
    return redis.error_reply('UNREADABLE record')
end
if string.byte(head, 2) ~= RUNNING or token_of(head) ~= ARGV[1] then
    return 0
end
local hold, retention = struct.unpack('<dd', ARGV[2])
local values = opened(head)
local expired_at = values[EXPIRES]
values[CHECKPOINTED] = 1
values[HELD] = math.max(values[HELD], now + hold)
update(values, retention)
if values[EXPIRES] ~= expired_at and values[DUE] < 0 then
    index(id_of(KEYS[4]), values[EXPIRES], values[DUE])
end
redis.call('HSET', KEYS[4], 's', packed(values, string.sub(head, LENGTH + 1)), 'r', ARGV[3])
return 1
