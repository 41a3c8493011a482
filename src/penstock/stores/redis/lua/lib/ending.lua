-- Finalizes a message: frees its keys, nudges those that wait for it and publishes its callback.
-- keys: dedup unique correlation scope_name queue_name nudge edge hold queue result result_until
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

-- A nudge is a request to look at a held message, about the end of another one if any.
local NO_MESSAGE = '00000000000000'

local function put_nudge(held_id, about)
    call('ZADD', nudge, now_text, held_id .. (about or NO_MESSAGE))
end

-- An edge is the awaited message, the held one and the number of its wait.
local function nudge_awaiting(id)
    local from, to = '[' .. id, '(' .. id .. 'g'
    for _, member in ipairs(call('ZRANGEBYLEX', edge, from, to)) do
        put_nudge(sub(member, 15, 28), id)
    end
end

local function keep_result(id, queue_id, at, text)
    local stored = call('HGET', queue, queue_id)
    local kept = stored and cjson.decode(stored).settings.keep_results or 86400
    local expires = at + math.floor(kept * 1000000)
    if expires < now then return end
    call('HSET', result, id, text)
    call('ZADD', result_until, whole(expires), id)
end

-- A message that others wait for and that completed without a result gets a null, so that a result
-- that is no longer stored can be told from None.
local function keep_nothing(id, queue_id, at)
    if call('HEXISTS', result, id) == 0 then keep_result(id, queue_id, at, 'null') end
end

-- Call it when the message is finished or dead.
local function over(t, state, reason)
    free_keys(t)
    if has(t.flags, AWAITED) then
        nudge_awaiting(t.id)
        if state == 'completed' then keep_nothing(t.id, t.queue, now) end
    end
    if has(t.flags, HELD) then call('HDEL', hold, t.id) end
    if has(t.flags, CALLBACK) then call_back(t, state, reason) end
end
