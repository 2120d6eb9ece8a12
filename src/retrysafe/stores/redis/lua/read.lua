-- Some records of a bucket, expired ones too.
--
-- Keys: armed, ids, due; then records
-- Arguments: 1 whether with bodies; 2 whether with payloads (0 or 1)
-- Result: now; then for each {s, c, d, r, b, q, bytes of the body, payload or its bytes}; nil for one that is gone
--
-- It changes nothing.
local found = {struct.pack('<d', now)}
for place = 4, #KEYS do
    local key = KEYS[place]
    local stored = redis.pcall('HMGET', key, 's', 'c', 'd', 'r', 'b', 'q')
    if stored.err then
        found[#found + 1] = {'', false, false, false, false, false, -1, -1} -- something else has its name
    elseif not (stored[1] or stored[2]) then
        found[#found + 1] = false
    else
        stored[7] = stored[5] and #stored[5] or -1
        if ARGV[1] == '0' and stored[5] then
            stored[5] = ''
        end
        if ARGV[2] == '1' then
            stored[8] = redis.call('HGET', key, 'p')
        else
            stored[8] = redis.call('HEXISTS', key, 'p') == 1 and redis.call('HSTRLEN', key, 'p') or -1
        end
        found[#found + 1] = stored
    end
end
return found
