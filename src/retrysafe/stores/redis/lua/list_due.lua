-- Identities of a bucket whose payload a worker may handle, those first that could be handled first.
--
-- Keys: armed, ids, due
-- Arguments: 1 how many to skip; 2 how many at most
-- Result: identity and time of each
return redis.call(
    'ZRANGEBYSCORE', KEYS[3], '-inf', string.format('%.17g', now), 'WITHSCORES', 'LIMIT', ARGV[1], ARGV[2]
)
