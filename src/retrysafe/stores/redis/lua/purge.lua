-- Remove those of some records that have expired.
--
-- Keys: armed, ids, due; audit; then records
-- Arguments: 1 a door, or nothing: all; and for an entry in the audit trail: 2 the number of the operator's call,
--            3 by whom, 4 why
-- Result: how many were removed; how many stay although their time to be looked at has come; how many had been
--         removed by another; then for each that was in progress {id, s, c, d, r, b, q}
--
-- Atomic, as every script: a record that was claimed anew since it was listed has not expired.  One that has not
-- expired after all, because it is held or its lease is alive, is to be looked at again when that ends.  There is one
-- entry per call and bucket, which says how many were removed so far.
local removed, stayed, lost = 0, 0, 0
write_when_full()
local unresolved = {}
for place = 5, #KEYS do
    local key = KEYS[place]
    local id = id_of(key)
    local stored = redis.pcall('HMGET', key, 's', 'c') -- an error, if something else has its name
    local head, door = stored[1], stored[2]
    door = door and string.match(door, '^%Z*')
    if not head and redis.call('EXISTS', key) == 0 then
        redis.call('ZREM', KEYS[2], id)
        redis.call('ZREM', KEYS[3], id)
        lost = lost + 1
    elseif not head or is_damaged(head) or (ARGV[1] ~= '' and door ~= ARGV[1]) then
        stayed = stayed + 1
    elseif has_expired(head) then
        if string.byte(head, 2) == RUNNING then
            unresolved[#unresolved + 1] = {id, unpack(redis.call('HMGET', key, 's', 'c', 'd', 'r', 'b', 'q'))}
        end
        redis.call('DEL', key)
        redis.call('ZREM', KEYS[2], id)
        redis.call('ZREM', KEYS[3], id)
        removed = removed + 1
    else
        local values = opened(head)
        local again = values[EXPIRES]
        if values[STATE] == RUNNING then
            again = math.max(again, values[HELD], values[LEASE])
        end
        if again > now then
            index(id, again, values[DUE])
        else
            stayed = stayed + 1
        end
    end
end
if ARGV[2] and removed > 0 then
    local sofar = removed
    for _, entry in ipairs(redis.call('XREVRANGE', KEYS[4], '+', '-', 'COUNT', 1)) do
        if entry[2][2] == 'purge' and entry[2][4] == ARGV[2] then
            sofar = sofar + entry[2][6]
            redis.call('XDEL', KEYS[4], entry[1])
        end
    end
    redis.call(
        'XADD', KEYS[4], '*',
        'act', 'purge', 'call', ARGV[2], 'removed', sofar, 'at', string.format('%.17g', now), 'by', ARGV[3], 'reason', ARGV[4]
    )
end
return {removed, stayed, lost, unpack(unresolved)}
