-- keys: name result result_until correlation
-- with: message history
-- now, then id, name and correlation of each message that may go.
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
return latest
