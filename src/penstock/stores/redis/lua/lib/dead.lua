-- Dead letters: "dead_at reason_length error_length ticket reason error", and their order.
-- keys: dead dead_line
-- with: ticket history ending

local DEAD = '^(%d+) (%S+) (%S+) ()'

local function dead_member(t, moment) return t.queue .. hex(moment) .. t.id .. t.type end

local function dead_text(t, moment, reason, failure)
    return format('%s %s %s ', whole(moment), length_of(reason), length_of(failure))
        .. ticket_text(t) .. (reason or '') .. (failure or '')
end

local function put_dead(t, moment, reason, failure)
    t.flags = bit.band(t.flags, bit.bnot(UNIQUE))
    t.expires, t.position = NEVER, NONE
    call('HSET', dead, t.id, dead_text(t, moment, reason, failure))
    call('ZADD', dead_line, 0, dead_member(t, moment))
end

local function dead_of(id)
    local text = call('HGET', dead, id)
    if not text then return nil end
    local moment, reasons, errors, start = match(text, DEAD)
    local t, rest = ticket_of(id, text, start)
    t.dead_at = tonumber(moment)
    if reasons ~= NONE then
        t.reason = sub(text, rest, rest + reasons - 1)
        rest = rest + reasons
    end
    if errors ~= NONE then t.error = sub(text, rest, rest + errors - 1) end
    return t
end

-- Returns nil if it is not dead, or is claimed.
local function take_dead(id)
    local t = dead_of(id)
    if not t or call('ZREM', dead_line, dead_member(t, t.dead_at)) == 0 then return nil end
    call('HDEL', dead, id)
    return t
end

-- Makes a dead ticket ready, with its counters reset; a keyed one joins the line of its key.
local function put_back(t, reason)
    local expires = heading(call('HGET', message, t.id)).expires
    t.attempts, t.deliveries, t.expires = 0, 0, expires == NONE and NEVER or expires
    if has(t.flags, KEYED) then
        record(t, 'redrive', 'scheduled', {reason = reason})
        get_in_line(t, hex(call('HINCRBY', fact, 'message', 1)))
    else
        record(t, 'redrive', 'ready', {reason = reason})
        put_ready(t)
    end
end

-- Ends a ticket that has no lease.
local function finish(t, verb, state, reason)
    record(t, verb, state, {reason = reason})
    over(t, state, reason)
end
