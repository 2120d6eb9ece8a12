-- Replace the attempt that holds a token, if it failed, or was abandoned before anything left; else go on as
-- `reserve.lua`, which follows.
--
-- Keys: armed, ids, due, the record
-- Arguments: 1 to 4 as `reserve.lua`; 5 the payload, 6 its presence (0 or 1); 7 the token of the attempt to be
--            replaced; 8 its state (0 in progress, 2 failed); 9 whether the claim is only stored (0 or 1)
-- Result: as `reserve.lua`
--
-- Atomic, as every script: of two successors one finds the token gone.  Creation and what the first attempt claimed
-- stay, and so does the expiry, unless it is counted from the last update.  A payload stays, unless the claim brings
-- another one.
if ARGV[6] == '0' then
    ARGV[5] = nil
end
local previous = redis.call('HGET', KEYS[4], 's')
if
    previous
    and not is_damaged(previous)
    and not has_expired(previous)
    and token_of(previous) == ARGV[7]
    and string.byte(previous, 2) == tonumber(ARGV[8])
then
    local values = opened(previous)
    local abandoned = values[CHECKPOINTED] == 0 and has_lapsed(values[LEASE], values[EXPIRES])
    local is_left = ARGV[9] == '0' or values[DUE] < 0
    if (values[STATE] == FAILED or (values[STATE] == RUNNING and abandoned)) and is_left then
        local lease, retention, hold, due_in = struct.unpack('<dddd', ARGV[1])
        local was_due, expired_at = values[DUE], values[EXPIRES]
        local has_payload = ARGV[5] or redis.call('HEXISTS', KEYS[4], 'p') == 1
        values[3], values[RETENTION_FROM] = string.byte(ARGV[1], 35, 36)
        values[STATE], values[CHECKPOINTED], values[OMITTED] = RUNNING, 0, 0
        values[ATTEMPT] = values[ATTEMPT] + 1
        values[LEASE], values[HELD], values[COMPLETED] = now + lease, now + hold, -1
        values[DUE] = has_payload and due_in >= 0 and now + due_in or -1
        update(values, retention)
        values[15], values[16] = string.byte(ARGV[2], 1, 2)
        if was_due >= 0 or values[DUE] >= 0 or values[EXPIRES] ~= expired_at then
            index(id_of(KEYS[4]), values[EXPIRES], values[DUE])
        end
        redis.call('HSET', KEYS[4], 's', packed(values, string.sub(ARGV[2], 3)), 'd', ARGV[4])
        if ARGV[5] then
            redis.call('HSET', KEYS[4], 'p', ARGV[5])
        end
        redis.call('HDEL', KEYS[4], 'r', 'b')
        redis.call('PERSIST', KEYS[4])
        return values[ATTEMPT]
    end
end

