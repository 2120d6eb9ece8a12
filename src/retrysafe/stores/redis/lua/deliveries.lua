-- Add to how often a record was asked for, and when.
--
-- Keys: armed, ids, due, the record
-- Arguments: 1 how often; 2 how many times to keep; then how many seconds ago each, the oldest first
-- Result: 1; 0 if there is no such record
--
-- Atomic, as every script, so that the counts of several processes add up.  It is not an update.
if redis.call('HEXISTS', KEYS[4], 's') == 0 then
    return 0
end
local times = {}
for word in string.gmatch(redis.call('HGET', KEYS[4], 'q') or '', '%S+') do
    times[#times + 1] = word
end
-- number, when it was last asked for, and then the latest times
local number = (table.remove(times, 1) or 1) + ARGV[1]
local seen_at = tonumber(table.remove(times, 1) or 0)
for place = 3, #ARGV do
    times[#times + 1] = string.format('%.17g', now - ARGV[place])
end
seen_at = math.max(seen_at, tonumber(times[#times]))
local first = math.max(1, #times - ARGV[2] + 1)
redis.call(
    'HSET', KEYS[4], 'q',
    string.format('%d %.17g ', number, seen_at) .. table.concat(times, ' ', first, #times)
)
return 1
