-- Store the outcome of a running record, in time or late.
--
-- Keys: armed, ids, due, the record
-- Arguments: 1 token; 2 state and whether the body is omitted, a byte each, then retention and seconds until a worker
--            may handle the payload (-1: none may); 3 status and headers; 4 body; 5 details, if they have changed
-- Result: 1, also if this very outcome is stored already; 0 when fenced
--
-- Atomic, as every script, and fenced by the token.  The expiry moves if it has passed, or is counted from the last
-- update.
local head = redis.call('HGET', KEYS[4], 's')
if not head then
    return 0
end
if is_damaged(head) then
    return redis.error_reply('UNREADABLE record')
end
if token_of(head) ~= ARGV[1] then
    return 0
end
local state, omitted, retention, due_in = struct.unpack('<BBdd', ARGV[2])
local values = opened(head)
if values[STATE] ~= RUNNING then
    local stored = redis.call('HMGET', KEYS[4], 'r', 'b')
    if
        values[STATE] ~= state
        or values[OMITTED] ~= omitted
        or stored[1] ~= ARGV[3]
        or stored[2] ~= ARGV[4]
    then
        return 0
    end
    if CONFIRM then
        redis.call('HSET', KEYS[4], 's', head)
    end
    return 1
end
local was_due, expired_at = values[DUE], values[EXPIRES]
values[STATE], values[OMITTED] = state, omitted
values[COMPLETED] = now
values[DUE] = due_in >= 0 and now + due_in or -1
update(values, retention)
if values[EXPIRES] <= now then
    values[EXPIRES] = now + retention
end
if was_due >= 0 or values[DUE] >= 0 or values[EXPIRES] ~= expired_at then
    index(id_of(KEYS[4]), values[EXPIRES], values[DUE])
end
head = packed(values, string.sub(head, LENGTH + 1))
redis.call('HSET', KEYS[4], 's', head, 'r', ARGV[3], 'b', ARGV[4])
if ARGV[5] then
    redis.call('HSET', KEYS[4], 'd', ARGV[5])
end
outlive(KEYS[4], values)
return 1
