-- keys: name result result_until correlation
-- with: message history ids audit
-- ARGV: now, then id, name and correlation of each message to remove.
local latest = call('HGET', fact, 'pruned') or '0'
for place = 2, #ARGV, 3 do
    local id, field, entry = ARGV[place], ARGV[place + 1], ARGV[place + 2]
    for position in string.gmatch(call('HGET', story, id) or '', '%d+') do
        call('XDEL', history, position .. '-0')
    end
    call('HDEL', story, id)
    call('HDEL', result, id)
    call('ZREM', result_until, id)
    if field ~= '' and call('HGET', name, field) == id then call('HDEL', name, field) end
    if entry ~= '' then call('ZREM', correlation, entry) end
    call('HDEL', message, id)
    local number = tonumber(id, 16)
    if number > tonumber(latest) then latest = whole(number) end
end
call('HSET', fact, 'pruned', latest)

-- Extends the gap at the beginning, which has no messages.
local start = gaps[1] and gaps[1][1] == 1 and gaps[1] or {1, 0}
local ids, numbers = ids_from(start[2], 1, 2000)
local reached = start[2]
for place, value in ipairs(#ids > 0 and call('HMGET', message, unpack(ids)) or {}) do
    if value then break end
    reached = numbers[place]
end
if reached > start[2] then
    call('ZADD', gap, 1, '1 ' .. whole(reached))
    if start[2] > 0 then call('ZREM', gap, '1 ' .. whole(start[2])) end
end
acted()
return latest
