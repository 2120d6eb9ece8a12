-- Have a worker handle the payload of a record that was seen failed, abandoned or waiting, now.
--
-- Keys: armed, ids, due, the record; audit
-- Arguments: 1 token; 2 the new token; 3 state, in which it was seen (0, 2); 4 status and headers, 5 body and 6
-- omission
--            (0 or 1) of the outcome of one that had none; then the entry: 7 by whom, 8 why, 9 outcome
-- Result: 1; 0 when it is not as it was seen, or has no payload
--
-- Atomic, as every script, with its entry in the audit trail, and fenced.  The new token shuts out an owner that was
-- taken for dead.
local head = redis.call('HGET', KEYS[4], 's')
if not head or is_damaged(head) or has_expired(head) or token_of(head) ~= ARGV[1] then
    return 0
end
local values = opened(head)
if
    values[STATE] ~= tonumber(ARGV[3])
    or not (values[STATE] == FAILED or (values[STATE] == RUNNING and has_lapsed(values[LEASE], values[EXPIRES])))
    or redis.call('HEXISTS', KEYS[4], 'p') == 0
then
    return 0
end
local fingerprint = string.sub(head, LENGTH + values[15] + 1)
local had_none = values[STATE] == RUNNING
if had_none then
    values[STATE], values[OMITTED], values[COMPLETED] = FAILED, tonumber(ARGV[6]), now
end
values[UPDATED], values[DUE], values[15] = now, now, #ARGV[2]
local id = id_of(KEYS[4])
redis.call(
    'XADD', KEYS[5], '*',
    'act', 'redrive', 'at', string.format('%.17g', now), 'by', ARGV[7], 'reason', ARGV[8], 'outcome', ARGV[9],
    'id', id, 'claimed', redis.call('HGET', KEYS[4], 'c')
)
index(id, values[EXPIRES], values[DUE])
redis.call('HSET', KEYS[4], 's', packed(values, ARGV[2] .. fingerprint))
if had_none then
    redis.call('HSET', KEYS[4], 'r', ARGV[4], 'b', ARGV[5])
end
outlive(KEYS[4], values)
return 1
