-- Holds, edges and steps of messages that wait.
-- keys: edge_of edge_state step step_line
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

-- Writes the holds of a message. `published` has the ids of the entries that holds refer to.
local function put_holds(id, holds, published)
    for _, each in ipairs(holds) do
        for _, place in ipairs(each.entries or {}) do
            put_edge(id, each, published[place + 1])
        end
        for _, awaited in ipairs(each.ids or {}) do put_edge(id, each, awaited) end
        each.entries, each.ids = nil, nil
    end
    call('HSET', hold, id, cjson.encode(holds))
end

-- Writes the holds of entries that wait for others before their first delivery.
local function hold_published(asked, ids)
    for _, entry in ipairs(asked) do
        local id = ids[entry.place + 1]
        date_holds(entry.holds, 0)
        put_holds(id, entry.holds, ids)
        put_nudge(id)
    end
end

-- Returns one id per entry.
local function expand(outcomes)
    local ids = {}
    for _, text in ipairs(outcomes) do
        local first, count = match(text, '^= (%x+) (%d+)$')
        if first then
            for each = 0, count - 1 do ids[#ids + 1] = hex(tonumber(first, 16) + each) end
        else
            ids[#ids + 1] = match(text, '%x+$')
        end
    end
    return ids
end

local STEP = '^(%a+) (%d+) (%d) (%S+) (%d+) (%d+) (%d+) (%d+) ()'

local function step_field(id, name_, key) return id .. name_ .. '\0' .. key end

local function position_text(position) return format('%08x', position) end

-- "kind position done due at fence name_length key_length name key body"
local function put_step(id, fence, s)
    local field = step_field(id, s.name, s.key)
    local text = table.concat({
        s.kind, s.position, s.done, s.due, now_text, fence, #s.name, #s.key, '',
    }, ' ') .. s.name .. s.key .. s.body
    call('HSET', step, field, text)
    call('ZADD', step_line, 0, id .. position_text(s.position) .. sub(field, 15))
    return text
end

-- A step in ARGV: name, key, kind, position, done, due, body.
local function step_at(place)
    return {
        name = ARGV[place], key = ARGV[place + 1], kind = ARGV[place + 2],
        position = ARGV[place + 3], done = ARGV[place + 4], due = ARGV[place + 5],
        body = ARGV[place + 6],
    }
end

local function flag_steps(t)
    if not has(t.flags, STEPS) then t.flags = bit.bor(t.flags, STEPS) end
end
