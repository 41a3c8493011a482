-- Leases: "fence kind claimed_at length ticket consumer"; kind is p if its end frees and
-- announces nothing, otherwise x.
-- keys: lease lease_until mark
-- with: ticket history ending dead

local LEASE = '^(%d+) (%a) (%d+) (%d+) ()'

local function lease_of(id, text)
    local fence, _, claimed_at, length, start = match(text, LEASE)
    local t, rest = ticket_of(id, text, start)
    t.fence, t.claimed_at, t.length, t.text = fence, claimed_at, length, text
    t.consumer = sub(text, rest)
    return t
end

local function lease_text(t, kind)
    return table.concat({t.fence, kind, t.claimed_at, t.length, ticket_text(t)}, ' ') .. t.consumer
end

-- Returns nil unless this fence holds it.
local function held(id, fence)
    local text = call('HGET', lease, id)
    if not text then return nil end
    local t = lease_of(id, text)
    return t.fence == fence and t or nil
end

local function keep_lease(t) call('HSET', lease, t.id, lease_text(t, 'x')) end

local function drop_lease(t)
    call('HDEL', lease, t.id)
    call('ZREM', lease_until, t.id)
    call('HDEL', mark, t.id)
end

-- Returns the state of a message, or nil if it does not exist. In no other place, it is ready.
local function state_of(id)
    if call('HEXISTS', lease, id) == 1 then return 'claimed' end
    local over = ended(id)
    if over then return over end
    local text = call('HGET', ticket, id)
    if text and is_scheduled((ticket_of(id, text))) then return 'scheduled' end
    if call('HEXISTS', dead, id) == 1 then return 'dead' end
    return call('HEXISTS', message, id) == 1 and 'ready' or nil
end

-- Explains why a verb with this fence changed nothing.
local function explain(id, fence, verb)
    local text = call('HGET', lease, id)
    if text and match(text, '^%d+') == fence then return 'changed' end
    local once = false
    for _, row in ipairs(rows_of(id)) do
        local done, state, by = parse_row(row[2])
        if by == fence then
            if done == verb then return 'already ' .. state end
            once = true
        end
    end
    if once or text then return 'lost' end
    local state = state_of(id)
    return state and 'invalid ' .. state or 'missing'
end
