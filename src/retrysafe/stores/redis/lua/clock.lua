-- The store's clock: seconds since the epoch, by the server that has the record.  No worker's clock has a say.
local function clock()
    local time = redis.call('TIME')
    return time[1] + time[2] / 1000000
end

