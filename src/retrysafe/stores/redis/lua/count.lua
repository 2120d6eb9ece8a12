-- Add to the numbers of how calls ended.
--
-- Keys: armed, ids, due of the books; calls, a hash: by place, as JSON, "count since last"
-- Arguments: place, number; and so on
-- Result: 1
--
-- Atomic, as every script, so that the counts of several processes add up.
for place = 1, #ARGV, 2 do
    local said = redis.call('HGET', KEYS[4], ARGV[place])
    local number, since = 0, nil
    if said then
        number, since = string.match(said, '^(%S+) (%S+)')
    end
    redis.call(
        'HSET', KEYS[4], ARGV[place],
        string.format('%d %s %.17g', number + ARGV[place + 1], since or string.format('%.17g', now), now)
    )
end
return 1
