-- keys: history
-- with: message ids
-- ARGV: now, last message, last row, limit of each. Also returns how far it read.
local after, limit = tonumber(ARGV[2]), tonumber(ARGV[4])
local messages, more = {}, true
for _ = 1, 20 do
    local ids, numbers = ids_from(after, 1, 500)
    more = #ids > 0
    if not more or #messages == 2 * limit then break end
    for place, value in ipairs(call('HMGET', message, unpack(ids))) do
        after = numbers[place]
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
return {epoch, messages, whole(after), more and '1' or '', rows}
