-- Reserve a key that has no record, or whose record has expired; else return the record.
--
-- Keys: armed, ids, due, the record
-- Arguments: 1 lease, retention, hold, seconds until the payload is due (-1: none), then the first ten bytes of a
--            head; 2 the head's last bytes: lengths, token and fingerprint; 3 what was claimed; 4 details;
--            5 the payload, where there is one
-- Result: the number of the attempt, or {s, c, d, r, b, q, now}
--
-- Atomic, as every script: of many that ask for the same key, the first finds nothing.
local head, claimed, details, response, body, deliveries =
    unpack(redis.call('HMGET', KEYS[4], 's', 'c', 'd', 'r', 'b', 'q'))
if head or claimed then
    head = head or ''
    local legible = not is_damaged(head)
    if not legible or not has_expired(head) then
        if CONFIRM and legible then
            redis.call('HSET', KEYS[4], 's', head)
        end
        local token = string.sub(ARGV[2], 3, 2 + string.byte(ARGV[2]))
        if legible and string.byte(head, 2) == RUNNING and token_of(head) == token then
            return (struct.unpack('<I4', head, 7)) -- its own earlier success, whose acknowledgement was lost
        end
        return {head, claimed, details, response, body, deliveries, struct.pack('<d', now)}
    end
    redis.call('DEL', KEYS[4])
end

local lease, retention, hold, due_in = struct.unpack('<dddd', ARGV[1])
local due = ARGV[5] and due_in >= 0 and now + due_in or -1
if due >= 0 then
    index(id_of(KEYS[4]), now + retention, due)
else
    redis.call('ZADD', KEYS[2], now + retention, id_of(KEYS[4]))
end
head = string.sub(ARGV[1], 33)
    .. struct.pack('<ddddddd', now + lease, now, now, -1, now + retention, now + hold, due)
    .. ARGV[2]
if ARGV[5] then
    redis.call('HSET', KEYS[4], 's', head, 'c', ARGV[3], 'd', ARGV[4], 'p', ARGV[5])
elseif ARGV[4] ~= '' then
    redis.call('HSET', KEYS[4], 's', head, 'c', ARGV[3], 'd', ARGV[4])
else
    redis.call('HSET', KEYS[4], 's', head, 'c', ARGV[3])
end
return 1
