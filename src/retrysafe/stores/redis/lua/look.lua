-- The record of a key, unless it has expired.
--
-- Keys: armed, ids, due, the record
-- Result: {s, c, d, r, b, q, now}; nil if there is none
--
-- It changes nothing, except that it is written once more where replicas must acknowledge what is told.  A damaged
-- record is shown, never skipped.
local found = redis.call('HMGET', KEYS[4], 's', 'c', 'd', 'r', 'b', 'q')
local head = found[1] or ''
if not (found[1] or found[2]) then
    return false
end
if not is_damaged(head) then
    if has_expired(head) then
        return false
    end
    if CONFIRM then
        redis.call('HSET', KEYS[4], 's', head)
    end
end
found[7] = struct.pack('<d', now)
return found
