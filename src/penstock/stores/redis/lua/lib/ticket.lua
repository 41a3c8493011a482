-- Waiting tickets: in ready, ordered by queue, rank and id; in scheduled, until they are due.
-- keys: ready typed due scheduled ticket expiry held_until
-- with: message

local TICKET = '(%x+) (%x+) (%d+) (%d+) (%d+) (%d+) (%S+) (%S+) (%S+) (%d+) ()'
local indexed = call('HGET', fact, 'typed')
local hashes = {}

-- "queue rank attempts deliveries expires flags key own position type_length type"
local function ticket_text(t)
    return format('%s %s %d %d %s %d %s %s %s %d %s', t.queue, t.rank, t.attempts, t.deliveries,
        t.expires, t.flags, t.key, t.own, t.position, #t.type, t.type)
end

local function ticket_of(id, text, start)
    local queue, rank, attempts, deliveries, expires, flags, key, own, position, length, rest =
        match(text, TICKET, start)
    return {
        id = id, queue = queue, rank = rank, attempts = tonumber(attempts),
        deliveries = tonumber(deliveries), expires = expires, flags = tonumber(flags), key = key,
        own = own, position = position, type = sub(text, rest, rest + length - 1),
    }, rest + length
end

-- The ticket of a plain message.
local function plain_ticket(id, head)
    return {
        id = id, queue = head.queue, rank = head.rank, attempts = 0, deliveries = 0,
        expires = NEVER, flags = 0, key = NONE, own = NONE, position = NONE, type = head.type,
    }
end

local function waiting(id)
    local text = call('HGET', ticket, id)
    if text then return (ticket_of(id, text)) end
    local value = call('HGET', message, id)
    return value and plain_ticket(id, heading(value))
end

local function type_hash(type_)
    local found = hashes[type_]
    if not found then
        found = sub(redis.sha1hex(type_), 1, 16)
        hashes[type_] = found
    end
    return found
end

local function ready_member(t) return t.queue .. t.rank .. t.id .. t.type end

local function typed_member(queue, rank, id, type_)
    return queue .. type_hash(type_) .. rank .. id .. type_
end

local function index_type(t, command, ...)
    if indexed then
        local arguments = {...}
        arguments[#arguments + 1] = typed_member(t.queue, t.rank, t.id, t.type)
        call(command, typed, unpack(arguments))
    end
end

local function watch_expiry(t)
    if t.expires ~= NEVER then call('ZADD', expiry, t.expires, t.id) end
end

local function forget(t)
    call('HDEL', ticket, t.id)
    if t.expires ~= NEVER then call('ZREM', expiry, t.id) end
end

local function put_ready(t)
    t.position = NONE
    call('HSET', ticket, t.id, ticket_text(t))
    watch_expiry(t)
    call('ZADD', ready, 0, ready_member(t))
    index_type(t, 'ZADD', 0)
    woken[t.queue] = true
end

local function take_ready(t)
    if call('ZREM', ready, ready_member(t)) == 0 then return false end
    index_type(t, 'ZREM')
    forget(t)
    return true
end

-- Without a due time it waits for its ordering key. A held one is never promoted, only looked at.
local function put_scheduled(t, moment)
    call('HSET', ticket, t.id, ticket_text(t))
    watch_expiry(t)
    call('ZADD', scheduled, 0, t.queue .. t.id)
    if has(t.flags, HELD) then
        call('ZADD', held_until, moment or NEVER, t.id)
    elseif moment then
        call('ZADD', due, moment, t.id)
    end
end

local function is_scheduled(t) return call('ZSCORE', scheduled, t.queue .. t.id) end

local function take_scheduled(t)
    if call('ZREM', scheduled, t.queue .. t.id) == 0 then return false end
    if has(t.flags, HELD) then call('ZREM', held_until, t.id) else call('ZREM', due, t.id) end
    forget(t)
    return true
end

local function of_queue(set, queue, limit)
    return call('ZRANGEBYLEX', set, '[' .. queue, '(' .. queue .. 'g', 'LIMIT', 0, limit)
end
