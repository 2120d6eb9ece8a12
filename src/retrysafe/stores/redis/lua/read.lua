-- Some records of a bucket, expired ones too.
--
-- Keys: armed, ids, due; then records
-- Arguments: 1 whether with bodies; 2 whether with payloads (0 or 1)
-- Result: now; then for each {s, c, d, r, b, q, bytes of the body, payload or its bytes}; nil for one that is gone
--
-- It changes nothing.
local found = {struct.pack('<d', now)}

-- Its bytes, or -1 where there is none; it is not read for that.
local function length_of(key, field)
    local length = redis.call('HSTRLEN', key, field)
    return (length > 0 or redis.call('HEXISTS', key, field) == 1) and length or -1
end

for place = 4, #KEYS do
    local key = KEYS[place]
    local stored = redis.pcall('HMGET', key, 's', 'c', 'd', 'r', 'q')
    if stored.err then
        found[#found + 1] = {'', false, false, false, false, false, -1, -1} -- something else has its name
    elseif not (stored[1] or stored[2]) then
        found[#found + 1] = false
    else
        local head, claimed, details, response, deliveries = unpack(stored)
        local length = length_of(key, 'b')
        local body = length >= 0 and ''
        if ARGV[1] == '1' then
            body = redis.call('HGET', key, 'b')
        end
        local payload = ARGV[2] == '1' and redis.call('HGET', key, 'p') or length_of(key, 'p')
        found[#found + 1] = {head, claimed, details, response, body, deliveries, length, payload}
    end
end
return found
