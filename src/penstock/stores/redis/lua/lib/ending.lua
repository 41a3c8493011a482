-- Finalizes a message: frees its keys and publishes its callback.
-- keys: dedup unique correlation scope_name queue_name
-- with: keys

local function free_keys(t)
    if has(t.flags, KEYED) and is_head(t) then
        call('HDEL', head, t.key)
        advance(t.key)
    end
    if has(t.flags, UNIQUE) then
        local field = call('HGET', unique, t.id)
        call('HDEL', unique, t.id)
        local text = field and call('HGET', dedup, field)
        if text and sub(text, 1, 14) == t.id then call('HDEL', dedup, field) end
    end
end

-- Publishes a message to the callback queue.
local function call_back(t, state, reason)
    local home = call('HGET', scope_name, '["default","default"]')
    local queue_id = call('HGET', queue_name, home .. ':_callback')
    local of = whole(tonumber(t.id, 16))
    local named = 'callback-' .. of
    local meta = '{"correlation_id":"' .. named .. '","parent_id":' .. of .. '}'
    local why = reason and ',"reason":' .. cjson.encode(reason) or ''
    local body = '{"id":"' .. of .. '","state":"' .. state .. '"' .. why .. '}'
    local id = hex(call('HINCRBY', fact, 'message', 1))
    local rank = hex(9007199254740992)
    call('HSET', message, id, table.concat({
        now_text, rank, NONE, NONE, queue_id, 0, #'callback', #meta, 'callback',
    }, ' ') .. meta .. body)
    call('ZADD', correlation, 0, redis.sha1hex(named) .. id)
    put_ready(plain_ticket(id, {queue = queue_id, rank = rank, type = 'callback'}))
end

-- Call it when the message is finished or dead.
local function over(t, state, reason)
    free_keys(t)
    if has(t.flags, CALLBACK) then call_back(t, state, reason) end
end
