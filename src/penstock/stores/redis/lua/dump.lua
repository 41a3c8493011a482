-- keys: result result_until step step_line signal signal_line edge edge_of edge_state hold
-- with: lease ids
-- ARGV: now, last message read, limit, bytes. Returns for each message its id and value, the place
-- and text of its ticket, due, whether it holds its key, its result, its rows, and what it waits for.
local room = tonumber(ARGV[4])

local function place_of(id)
    local text = call('HGET', lease, id)
    if text then return 'lease', text end
    text = call('HGET', ticket, id)
    if text and is_scheduled((ticket_of(id, text))) then return 'scheduled', text end
    text = call('HGET', dead, id)
    if text then return 'dead', text end
    local t = waiting(id)
    if call('ZSCORE', ready, ready_member(t)) then return 'ready', ticket_text(t) end
    return '', ''
end

local function holds_key(id, place, text)
    if place == '' then return '' end
    local start = place == 'lease' and select(5, match(text, LEASE))
        or place == 'dead' and select(4, match(text, DEAD)) or 1
    local t = ticket_of(id, text, start)
    return has(t.flags, KEYED) and is_head(t) and '1' or ''
end

local function range(set, id) return call('ZRANGEBYLEX', set, '[' .. id, '(' .. id .. 'g') end

local any_waits = false
for _, set in ipairs({step_line, signal_line, edge_of}) do
    any_waits = any_waits or call('EXISTS', set) == 1
end
any_waits = any_waits or call('EXISTS', hold) == 1

-- Appends a kind, a field and a text for each hold, step, signal and edge. With an edge to a
-- message that retention has removed comes its result.
local function waits_of(id)
    local found = {}
    local function add(kind, field, text)
        for _, value in ipairs({kind, field, text}) do found[#found + 1] = value end
        room = room - #text - 50
    end
    local holds = call('HGET', hold, id)
    if holds then add('hold', '', holds) end
    for _, member in ipairs(range(step_line, id)) do
        add('step', sub(member, 15), call('HGET', step, id .. sub(member, 23)))
    end
    for _, member in ipairs(range(signal_line, id)) do
        add('signal', sub(member, 15), call('HGET', signal, member))
    end
    for _, field in ipairs(range(edge_of, id)) do
        local awaited = sub(field, 29)
        add('edge', sub(field, 15), call('HGET', edge_state, field) or '')
        local value = call('HEXISTS', message, awaited) == 0 and call('HGET', result, awaited)
        if value then add('result', awaited, call('ZSCORE', result_until, awaited) .. ' ' .. value) end
    end
    return found
end

local function life_of(id, value)
    local place, text = place_of(id)
    local rows = {}
    for _, row in ipairs(rows_of(id)) do
        for part = 1, 3 do rows[#rows + 1] = row[part] end
    end
    return {
        id, value, place, text, place == 'lease' and call('HGET', dead, id) or '',
        call('ZSCORE', due, id) or call('ZSCORE', held_until, id) or '', holds_key(id, place, text),
        call('ZSCORE', result_until, id) or '', call('HGET', result, id) or '', rows,
        any_waits and waits_of(id) or {},
    }
end

local lives = {}
local reached, more = tonumber(ARGV[2]), true
for _ = 1, 20 do
    local ids, numbers = ids_from(reached, 1, tonumber(ARGV[3]) - #lives)
    more = #ids > 0
    if not more or room < 0 then break end
    for place, id in ipairs(ids) do
        local size = call('HSTRLEN', message, id)
        if #lives > 0 and size > room then
            room = -1
            break
        end
        reached = numbers[place]
        if size > 0 then
            room = room - size
            lives[#lives + 1] = life_of(id, call('HGET', message, id))
        end
    end
end
local counters = call('HMGET', fact, 'message', 'fence', 'pruned')
return {
    counters[1] or '0', counters[2] or '0', counters[3] or '0', lives, whole(reached),
    more and '1' or '',
}
