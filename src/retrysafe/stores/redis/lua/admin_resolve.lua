-- Settle a record that is abandoned, as an operator found out.
--
-- Keys: armed, ids, due, the record; audit
-- Arguments: 1 token; 2 the new token; 3 state and whether the body is omitted, a byte each; 4 status and headers;
--            5 body; then the entry: 6 by whom, 7 why, 8 outcome
-- Result: 1; 0 when it is not as it was seen
--
-- Atomic, as every script, with its entry in the audit trail, and fenced.  The new token shuts out the owner.  The
-- record lasts for its whole retention from now on, and no worker handles its payload any more.
local head = redis.call('HGET', KEYS[4], 's')
if not head or is_damaged(head) or has_expired(head) or token_of(head) ~= ARGV[1] then
    return 0
end
local values = opened(head)
if values[STATE] ~= RUNNING or not has_lapsed(values[LEASE], values[EXPIRES]) then
    return 0
end
local began = values[RETENTION_FROM] == 1 and values[UPDATED] or values[CREATED]
local fingerprint = string.sub(head, LENGTH + values[15] + 1)
values[STATE], values[OMITTED] = string.byte(ARGV[3], 1, 2)
values[EXPIRES] = now + math.max(values[EXPIRES] - began, 0)
values[UPDATED], values[COMPLETED], values[DUE], values[15] = now, now, -1, #ARGV[2]
local id = id_of(KEYS[4])
redis.call(
    'XADD', KEYS[5], '*',
    'act', 'resolve', 'at', string.format('%.17g', now), 'by', ARGV[6], 'reason', ARGV[7], 'outcome', ARGV[8],
    'id', id, 'claimed', redis.call('HGET', KEYS[4], 'c')
)
index(id, values[EXPIRES], values[DUE])
redis.call('HSET', KEYS[4], 's', packed(values, ARGV[2] .. fingerprint), 'r', ARGV[4], 'b', ARGV[5])
outlive(KEYS[4], values)
return 1
