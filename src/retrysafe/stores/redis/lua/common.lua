-- Put in front of every script, after `clock.lua` and the line that sets CONFIRM.
--
-- A bucket is all records whose identities begin with the same byte.  Its keys have the same hash tag, so they are
-- in one slot of a cluster:
--
--   KEYS[1]  :armed   the sentinel: version of this layout, incarnation, time of arming
--   KEYS[2]  :ids     a sorted set of all identities, by the time at which to look whether they have expired
--   KEYS[3]  :due     a sorted set of those whose payload a worker may handle, by the time from which on
--   KEYS[4]  :r:<id>  a record, where the script is about one; its identity is in hexadecimal
--
-- A record is a hash: s its head, c what was claimed (door, scope, key, action, target, request id, correlation id),
-- d details, r status and headers of the response, b its body, p the payload, q how often it was asked for again.
-- Only the head is looked into here; the rest is `records.py`'s.
--
-- Scripts are atomic: the server runs nothing else meanwhile.  They are not undone when they fail, so each checks first
-- and writes afterwards, and adds to the sorted sets before it writes a record: what is in a set without a record
-- is removed by the next purge, and a record that is in no set would never be.
--
-- Without the sentinel nothing is done: the records that were here are gone, or this is another database, and what
-- looks like a new key may be one that was used.

-- version, state, mode, retention from, checkpointed, omitted, attempt; lease until, created, updated, completed,
-- expires, held until, due; lengths of token and fingerprint, which follow.  Times that are not there are -1.
local HEAD = '<BBBBBBI4dddddddBB'
local LENGTH = 68
local VERSION, STATE, CHECKPOINTED, OMITTED, ATTEMPT = 1, 2, 5, 6, 7
local LEASE, CREATED, UPDATED, COMPLETED, EXPIRES, HELD, DUE = 8, 9, 10, 11, 12, 13, 14
local RETENTION_FROM = 4
local RUNNING, FAILED = 0, 2

-- Seconds after the expiry at which the server removes a settled record by itself, if no cleanup has done so.
-- One that is not settled is never removed by the server: an operator has to hear of it.
local MARGIN = 3600

local armed = redis.call('GET', KEYS[1])
if not armed then
    return redis.error_reply('STORERESET the sentinel is missing')
end
if string.sub(armed, 1, 2) ~= '1 ' then
    return redis.error_reply('STOREVERSION the layout is ' .. string.match(armed, '^%w*'))
end
local now = clock()

-- The identity at the end of a record's key.
local function id_of(key)
    return string.sub(key, #KEYS[1] - 2)
end

local function is_damaged(head)
    return #head < LENGTH
        or string.byte(head, 1) ~= 1
        or string.byte(head, 2) > 2
        or #head ~= LENGTH + string.byte(head, 67) + string.byte(head, 68)
end

local function token_of(head)
    return string.sub(head, LENGTH + 1, LENGTH + string.byte(head, 67))
end

-- The lease has ended.  A missing one counts as alive for as long as the record.
local function has_lapsed(lease, expires)
    return (lease > 0 and lease or expires) <= now
end

local function has_expired(head)
    local lease, _, _, _, expires, held, due = struct.unpack('<ddddddd', head, 11)
    return expires <= now
        and due < 0
        and (string.byte(head, 2) ~= RUNNING or (held <= now and has_lapsed(lease, expires)))
end

-- The head's values, to be changed and packed again.
local function opened(head)
    return {struct.unpack(HEAD, head)}
end

local function packed(values, rest)
    return struct.pack(HEAD, unpack(values, 1, 16)) .. rest
end

-- Note when to look whether a record has expired, and from when on a worker may handle it.
local function index(id, expires, due)
    if due >= 0 then
        redis.call('ZADD', KEYS[2], '+inf', id)
        redis.call('ZADD', KEYS[3], due, id)
    else
        redis.call('ZADD', KEYS[2], expires, id)
        redis.call('ZREM', KEYS[3], id)
    end
end

-- Have the server remove a settled record in the end, or not.
local function outlive(key, values)
    if values[STATE] ~= RUNNING and values[DUE] < 0 then
        redis.call('PEXPIREAT', key, string.format('%.0f', (values[EXPIRES] + MARGIN) * 1000))
    else
        redis.call('PERSIST', key)
    end
end

-- Let what follows write, although the server's memory is used up: of a script it refuses only the first command
-- that may need some.  For what gives memory back.
local function write_when_full()
    redis.call('ZREM', KEYS[2], '')
end

-- A change, which a retention may be counted from.
local function update(values, retention)
    values[UPDATED] = now
    if values[RETENTION_FROM] == 1 then
        values[EXPIRES] = now + retention
    end
end

