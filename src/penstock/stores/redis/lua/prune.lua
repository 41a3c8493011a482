-- keys: name result result_until correlation step step_line signal signal_line edge_of edge_state hold
-- with: message history ids awaiting audit
-- ARGV: now, then id, name and correlation of each message to remove.
local stored = {
    steps = call('ZRANGE', step_line, 0, 0)[1], signals = call('ZRANGE', signal_line, 0, 0)[1],
}

local function range(set, id) return call('ZRANGEBYLEX', set, '[' .. id, '(' .. id .. 'g') end

-- Removes the steps, signals and edges of a message.
local function forget_waits(id)
    for _, member in ipairs(stored.steps and range(step_line, id) or {}) do
        call('HDEL', step, id .. sub(member, 23))
        call('ZREM', step_line, member)
    end
    for _, member in ipairs(stored.signals and range(signal_line, id) or {}) do
        call('HDEL', signal, member)
        call('ZREM', signal_line, member)
    end
    for _, field in ipairs(any_edges and range(edge_of, id) or {}) do
        call('ZREM', edge_of, field)
        call('HDEL', edge_state, field)
        call('ZREM', edge, sub(field, 29) .. sub(field, 1, 28))
    end
    call('HDEL', hold, id)
end

local latest = call('HGET', fact, 'pruned') or '0'
for place = 2, #ARGV, 3 do
    local id, field, entry = ARGV[place], ARGV[place + 1], ARGV[place + 2]
    for position in string.gmatch(call('HGET', story, id) or '', '%d+') do
        call('XDEL', history, position .. '-0')
    end
    local kept = is_awaited(id)
    call('HDEL', story, id)
    if not kept then
        call('HDEL', result, id)
        call('ZREM', result_until, id)
    end
    forget_waits(id)
    if field ~= '' and call('HGET', name, field) == id then call('HDEL', name, field) end
    if entry ~= '' then call('ZREM', correlation, entry) end
    call('ZREM', unsuccessful, id)
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
