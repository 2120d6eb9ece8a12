-- Whether a round of cleanup is due and the caller's: other processes then leave it alone for a while.
--
-- Keys: armed, ids, due of the books; cleanup, the time of the next round
-- Arguments: 1 seconds until another may begin one; 2 seconds: one that is due later than in so many is due now
-- Result: 1 if it is the caller's, else 0
--
-- Atomic, as every script: of several processes one gets it.
local due = tonumber(redis.call('GET', KEYS[4]) or 0) or 0 -- whatever is no time is due
if due > now and due <= now + ARGV[2] then
    return 0
end
write_when_full()
redis.call('SET', KEYS[4], string.format('%.17g', now + ARGV[1]))
return 1
