-- Identities of a bucket whose expiry is to be looked at, the earliest first.
--
-- Keys: armed, ids, due
-- Arguments: 1 how many to skip; 2 how many at most
-- Result: identities
return redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', string.format('%.17g', now), 'LIMIT', ARGV[1], ARGV[2])
