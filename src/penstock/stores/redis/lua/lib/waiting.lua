-- Holds and edges of messages that wait.
-- keys: edge_of edge_state lease
-- with: dead

-- A hold has a kind, name, due_at, policy, need and on_dead, and counts its edges.
local function holds_of(id)
    local text = call('HGET', hold, id)
    return text and cjson.decode(text) or {}
end

local function next_due(holds)
    local first = NEVER
    for _, each in ipairs(holds) do
        if tonumber(each.due_at) < tonumber(first) then first = each.due_at end
    end
    return first
end

-- Converts delays to times by the store's clock.
local function date_holds(holds, number)
    for _, each in ipairs(holds) do
        if each.delay then each.due_at = whole(now + each.delay) end
        each.delay, each.due_at = nil, each.due_at or NEVER
        each.number = number
        each.open, each.done, each.failed = 0, 0, 0
    end
end

local function put_edge(held_id, each, awaited)
    local number = hex(tonumber(each.number))
    if call('ZADD', edge_of, 0, held_id .. number .. awaited) == 1 then
        each.open = each.open + 1
        call('ZADD', edge, 0, awaited .. held_id .. number)
    end
end

-- Announces the end of a stored message to those that wait for it.
local function flag_awaited(id)
    local text = call('HGET', lease, id)
    if text then
        local fence, before, flags, rest = match(text,
            '^(%d+) %a (%d+ %d+ %x+ %x+ %d+ %d+ %d+) (%d+) (.*)$')
        if has(tonumber(flags), AWAITED) then return end
        call('HSET', lease, id, fence .. ' x ' .. before .. ' ' .. flags + AWAITED .. ' ' .. rest)
        return
    end
    local state, at = ended(id)
    if state == 'completed' then
        keep_nothing(id, heading(call('HGET', message, id)).queue, tonumber(at))
    end
    local t = dead_of(id) or not state and waiting(id)
    if not t or has(t.flags, AWAITED) then return end
    t.flags = t.flags + AWAITED
    if t.dead_at then
        call('HSET', dead, id, dead_text(t, t.dead_at, t.reason, t.error))
    else
        call('HSET', ticket, id, ticket_text(t))
    end
end

-- Writes the holds of a message. `published` has the ids of the entries that holds refer to.
local function put_holds(id, holds, published)
    for _, each in ipairs(holds) do
        for _, place in ipairs(each.entries or {}) do
            put_edge(id, each, published[place + 1])
            if published.stored[place + 1] then flag_awaited(published[place + 1]) end
        end
        for _, awaited in ipairs(each.ids or {}) do
            put_edge(id, each, awaited)
            flag_awaited(awaited)
        end
        each.entries, each.ids = nil, nil
    end
    call('HSET', hold, id, cjson.encode(holds))
end

-- Writes the holds of entries that wait for others before their first delivery.
local function hold_published(asked, ids)
    for _, entry in ipairs(asked) do
        local id = ids[entry.place + 1]
        -- A duplicate has its own holds, and one that overflowed is dead.
        if not ids.stored[entry.place + 1] and call('HEXISTS', ticket, id) == 1 then
            date_holds(entry.holds, 0)
            put_holds(id, entry.holds, ids)
            put_nudge(id)
        end
    end
end

-- Returns one id per entry. `stored` marks the duplicates, which were stored before.
local function expand(outcomes)
    local ids = {stored = {}}
    for _, text in ipairs(outcomes) do
        local first, count = match(text, '^= (%x+) (%d+)$')
        if first then
            for each = 0, count - 1 do ids[#ids + 1] = hex(tonumber(first, 16) + each) end
        else
            ids[#ids + 1] = match(text, '%x+$')
            ids.stored[#ids] = sub(text, 1, 2) == 'd '
        end
    end
    return ids
end
