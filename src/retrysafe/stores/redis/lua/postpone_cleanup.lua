-- The next round of cleanup is due in so many seconds.
--
-- Keys: armed, ids, due of the books; cleanup
-- Arguments: 1 seconds
-- Result: 1
write_when_full()
redis.call('SET', KEYS[4], string.format('%.17g', now + ARGV[1]))
return 1
