-- with: waiting lease
-- keys: signal signal_line
-- ARGV: now, limit. Looks at held messages that were nudged or are due.
local limit = tonumber(ARGV[2])
local asked, about, read = {}, {}, {}

local function ask(id, awaited)
    if not about[id] then
        if #asked == limit then return false end
        asked[#asked + 1] = id
        about[id] = {}
    end
    if awaited == '' or awaited == NO_MESSAGE then
        about[id].all = true
    else
        about[id][#about[id] + 1] = awaited
    end
    return true
end

for _, member in ipairs(call('ZRANGE', nudge, 0, 4999)) do
    if ask(sub(member, 1, 14), sub(member, 15)) then read[#read + 1] = member end
end
for _, id in ipairs(call('ZRANGEBYSCORE', held_until, '-inf', now_text, 'LIMIT', 0, limit)) do
    ask(id, '')
end

local function end_of(id)
    local state = ended(id)
    if state then return state end
    if call('HEXISTS', dead, id) == 1 then return 'dead' end
    -- A message that is no longer stored had ended. It counts as completed, without a result.
    return call('HEXISTS', message, id) == 0 and 'completed' or nil
end

-- Settles an edge once, and counts it.
local function settle_edge(field, each, awaited)
    if call('HGET', edge_state, field) then return end
    local state = end_of(awaited)
    if not state or (state == 'dead' and each.on_dead ~= 'settle') then return end
    call('HSET', edge_state, field, state)
    each.open = each.open - 1
    if state == 'completed' then each.done = each.done + 1 else each.failed = each.failed + 1 end
end

local function settle_edges(id, each)
    local prefix = id .. hex(tonumber(each.number))
    if not about[id].all then
        for _, awaited in ipairs(about[id]) do
            if call('ZSCORE', edge_of, prefix .. awaited) then
                settle_edge(prefix .. awaited, each, awaited)
            end
        end
        return
    end
    for _, field in ipairs(call('ZRANGEBYLEX', edge_of, '[' .. prefix, '(' .. prefix .. 'g')) do
        settle_edge(field, each, sub(field, 29))
    end
end

local function after_ended(each)
    local verdict
    if each.policy == 'all' then
        if each.failed > 0 then verdict = 'never' elseif each.open == 0 then verdict = 'yes' end
    elseif each.policy == 'any' then
        if each.done >= each.need then verdict = 'yes'
        elseif each.done + each.open < each.need then verdict = 'never' end
    elseif each.open == 0 and each.policy ~= 'decision' then
        verdict = 'yes'
    end
    -- A run that waits for its children is resumed, and sees which of them failed.
    if verdict == 'never' and tonumber(each.number) ~= 0 then return 'yes' end
    return verdict
end

local function has_signal(id, wanted)
    for _, member in ipairs(call('ZRANGEBYLEX', signal_line, '[' .. id, '(' .. id .. 'g')) do
        local text = call('HGET', signal, member)
        local consumed, length, start = match(text, '^(%d) %d+ (%d+) %S+ ()')
        if consumed == '0' and sub(text, start, start + length - 1) == wanted then return true end
    end
    return false
end

local function hold_ended(id, each)
    if each.kind == 'after' then settle_edges(id, each) end
    if tonumber(each.due_at) <= now then return 'yes' end
    if each.kind == 'signal' then return has_signal(id, each.name) and 'yes' or nil end
    return each.kind == 'after' and after_ended(each) or nil
end

-- The new place comes first and the holds go last: an interrupted resume is repeated.
local function resume(t)
    t.flags = bit.band(t.flags, bit.bnot(HELD))
    if has(t.flags, KEYED) and not is_head(t) then
        get_in_line(t, t.id)
    else
        put_ready(t)
        call('ZREM', scheduled, t.queue .. t.id)
    end
    call('ZREM', held_until, t.id)
    call('HDEL', hold, t.id)
end

-- Returns the ticket of a held message, or of one whose resume was interrupted.
local function find_held(id, holds)
    local text = call('HGET', ticket, id)
    local t = text and ticket_of(id, text)
    local leased = call('HGET', lease, id)
    if ended(id) then
        if t then take_scheduled(t) end
        return nil
    end
    if leased then
        local l = lease_of(id, leased)
        local waits = t and has(t.flags, HELD) and holds[1] and holds[1].number == l.fence
        if not waits then
            if t and is_scheduled(t) then take_scheduled(t) end
            return nil
        end
        -- An interrupted wait: only its lease is left.
        put_scheduled(t, next_due(holds))
        drop_lease(l)
    end
    if not t or not is_scheduled(t) or call('ZSCORE', due, id) then return nil end
    return (has(t.flags, HELD) or holds[1]) and t
end

local function check_holds(id)
    local holds = holds_of(id)
    local t = find_held(id, holds)
    if not t then
        call('HDEL', hold, id)
        call('ZREM', held_until, id)
        return 0
    end
    if not has(t.flags, HELD) then
        resume(t)
        return 1
    end
    local left, never = {}, false
    for _, each in ipairs(holds) do
        local verdict = hold_ended(id, each)
        never = never or verdict == 'never'
        if not verdict then left[#left + 1] = each end
    end
    if never then
        finish(t, 'cancel', 'cancelled', 'dependency_failed')
        take_scheduled(t)
        return 0
    end
    if #left == 0 then
        resume(t)
        return 1
    end
    call('HSET', hold, id, cjson.encode(left))
    call('ZADD', held_until, next_due(left), id)
    return 0
end

local resumed = 0
for _, id in ipairs(asked) do resumed = resumed + check_holds(id) end
if #read > 0 then in_parts(read, 'ZREM', nudge) end
local next_at = call('ZRANGE', held_until, 0, 0, 'WITHSCORES')[2] or ''
if next_at == NEVER then next_at = '' end
return woke({#asked, resumed, now_text, next_at, #asked >= limit and 1 or 0})
