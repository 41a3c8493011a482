-- keys: history
-- with: message
-- now, after which message, after which row, how many of each. Says how far it looked.
local after, limit = tonumber(ARGV[2]), tonumber(ARGV[4])
local last = tonumber(call('HGET', fact, 'message')) or 0
local messages = {}
for _ = 1, 20 do
    local ids = {}
    for number = after + 1, math.min(last, after + 500) do ids[#ids + 1] = hex(number) end
    if #ids == 0 or #messages == 2 * limit then break end
    for place, value in ipairs(call('HMGET', message, unpack(ids))) do
        after = after + 1
        if value then
            messages[#messages + 1] = ids[place]
            messages[#messages + 1] = value
            if #messages == 2 * limit then break end
        end
    end
end
local rows = {}
for _, entry in ipairs(call('XRANGE', history, '(' .. ARGV[3] .. '-0', '+', 'COUNT', limit)) do
    rows[#rows + 1] = match(entry[1], '^%d+')
    rows[#rows + 1] = entry[2][2]
end
local epoch = call('HGET', fact, 'epoch') or '0'
return {epoch, messages, whole(after), after < last and '1' or '', rows}
