-- Delete a record that is abandoned, or that was seen completed or failed, by an operator's decision.
--
-- Keys: armed, ids, due, the record; audit
-- Arguments: 1 token; 2 state, in which it was seen (0, 1, 2); then the entry: 3 by whom, 4 why, 5 outcome
-- Result: 1; 0 when it is not as it was seen
--
-- Atomic, as every script, with its entry in the audit trail, and fenced by token and state: an owner that renewed or
-- finished meanwhile, and a successor, are left alone, and so is every lease that has not ended.
local head = redis.call('HGET', KEYS[4], 's')
if not head or is_damaged(head) or has_expired(head) or token_of(head) ~= ARGV[1] then
    return 0
end
local values = opened(head)
if
    values[STATE] ~= tonumber(ARGV[2])
    or (values[STATE] == RUNNING and not has_lapsed(values[LEASE], values[EXPIRES]))
then
    return 0
end
local id = id_of(KEYS[4])
write_when_full()
redis.call(
    'XADD', KEYS[5], '*',
    'act', 'release', 'at', string.format('%.17g', now), 'by', ARGV[3], 'reason', ARGV[4], 'outcome', ARGV[5],
    'id', id, 'claimed', redis.call('HGET', KEYS[4], 'c')
)
redis.call('DEL', KEYS[4])
redis.call('ZREM', KEYS[2], id)
redis.call('ZREM', KEYS[3], id)
return 1
