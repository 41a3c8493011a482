-- Ordering keys: one message at a time per key.
-- keys: head line
-- with: ticket

local function in_line(t) return t.key .. t.position .. t.id end

local function leave_line(t)
    if t.position ~= NONE then call('ZREM', line, in_line(t)) end
end

-- Makes the key's next message ready, unless another still holds the key.
local function advance(key)
    while not call('HGET', head, key) do
        local first = call('ZRANGEBYLEX', line, '[' .. key, '(' .. key .. 'g', 'LIMIT', 0, 1)[1]
        if not first then return end
        local id = sub(first, -14)
        local text = call('HGET', ticket, id)
        local t = text and ticket_of(id, text)
        if t and take_scheduled(t) then
            call('HSET', head, key, id)
            put_ready(t)
        end
        call('ZREM', line, first)
    end
end

local function get_in_line(t, position)
    t.position = position
    put_scheduled(t)
    call('ZADD', line, 0, in_line(t))
    advance(t.key)
end

local function is_head(t) return call('HGET', head, t.key) == t.id end
