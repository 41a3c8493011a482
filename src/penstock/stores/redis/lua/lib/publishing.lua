-- Publishes entries in groups that differ only in their bodies.
-- keys: dedup_until name document
-- with: ticket history ending dead

local FIELDS = {
    'queue', 'rank', 'basis', 'delay', 'run_at', 'ttl', 'expires', 'flags', 'max_depth',
    'overflow', 'key', 'own', 'digest', 'window', 'correlation', 'unit',
}
-- Stands for the id of the parent in the meta of a copy.
local PARENT = '"parent_id":9223372036854775807'
-- What a held copy waits for: a person's decision, never other messages.
local DECISION = cjson.encode({{
    kind = 'after', name = '', policy = 'decision', need = 1, on_dead = 'wait', number = 0,
    due_at = NEVER, open = 0, done = 0, failed = 0,
}})
local DEDUP = '^(%x+) (%x*) (%d+)$'

-- Converts delays to times by the store's clock.
local function dated(group)
    local due_at = tonumber(group.run_at) or now + tonumber(group.delay)
    local rank = tonumber(group.rank) + 9007199254740992
    if group.basis == 'created' then rank = rank + math.floor(now / 1000) end
    if group.basis == 'due' then rank = rank + math.floor(math.max(due_at, now) / 1000) end
    local expires = tonumber(group.expires) or tonumber(NEVER)
    if group.ttl ~= NONE then expires = math.min(expires, now + tonumber(group.ttl)) end
    group.rank, group.due_at, group.later = hex(rank), due_at, due_at > now
    group.expires_text = whole(expires)
    group.before = table.concat({
        now_text, group.rank, group.later and whole(due_at) or NONE,
        group.expires_text == NEVER and NONE or group.expires_text, '',
    }, ' ')
    return group
end

-- A group: heading, type, dedup key, name, count, and that many bodies.
local function group_at(place)
    local group, field = {}, 0
    for word in string.gmatch(ARGV[place], '%S+') do
        field = field + 1
        group[FIELDS[field]] = word
    end
    group.type, group.dedup, group.name = ARGV[place + 1], ARGV[place + 2], ARGV[place + 3]
    group.flags, group.max_depth = tonumber(group.flags), tonumber(group.max_depth)
    group.first, group.last = place + 5, place + 4 + ARGV[place + 4]
    group.checked = group.dedup ~= '' or group.name ~= '' or group.max_depth or group.unit ~= NONE
    group.bare = not group.checked and group.flags == 0 and group.correlation == NONE
    return dated(group)
end

-- Returns a group with its unit, and the place behind it. A unit: the state that ends its entry,
-- the reason; the number of expected documents, with field and version of each; the number of
-- groups of copies, and these.
local function read_group(place)
    local group = group_at(place)
    place = group.last + 1
    if group.unit == NONE then return group, place end
    group.state, group.reason = ARGV[place], ARGV[place + 1]
    group.expected, group.copies = {}, {}
    local expected = tonumber(ARGV[place + 2])
    place = place + 3
    for number = 1, expected do
        group.expected[number] = {ARGV[place], ARGV[place + 1]}
        place = place + 2
    end
    local count = tonumber(ARGV[place])
    place = place + 1
    for number = 1, count do group.copies[number], place = read_group(place) end
    return group, place
end

local function groups_from(place)
    local groups = {}
    while ARGV[place] do groups[#groups + 1], place = read_group(place) end
    return groups
end

-- Writes plain entries in bulk.
local function publish_bare(group)
    local count = group.last - group.first + 1
    local last = call('HINCRBY', fact, 'message', count)
    local messages, members, types = {}, {}, {}
    local before, place, type_ = group.before, group.queue .. group.rank, group.type
    for each = 1, count do
        local id = hex(last - count + each)
        messages[2 * each - 1], messages[2 * each] = id, before .. ARGV[group.first + each - 1]
        members[2 * each - 1], members[2 * each] = 0, place .. id .. type_
        if indexed then
            types[2 * each - 1] = 0
            types[2 * each] = typed_member(group.queue, group.rank, id, type_)
        end
    end
    in_parts(messages, 'HSET', message)
    in_parts(members, 'ZADD', ready)
    in_parts(types, 'ZADD', typed)
    woken[group.queue] = true
    return '= ' .. hex(last - count + 1) .. ' ' .. count
end

-- Returns the outcome of a duplicate or refused entry, otherwise nil. `earlier` has what the same
-- call is about to write.
local function seen_before(group, earlier)
    if group.dedup == '' then return nil end
    local digest = earlier and earlier['d' .. group.dedup]
    local id, expires = '', NEVER
    if not digest then
        local text = call('HGET', dedup, group.dedup)
        if not text then return nil end
        id, digest, expires = match(text, DEDUP)
    end
    if tonumber(expires) <= now then return nil end
    return digest == group.digest and 'd ' .. id or 'IDEMPOTENCY_CONFLICT'
end

local function name_taken(group, earlier)
    if group.name == '' then return false end
    return earlier and earlier['n' .. group.name] or call('HEXISTS', name, group.name) == 1
end

local function depth_of(queue)
    local from, to = '[' .. queue, '(' .. queue .. 'g'
    return call('ZLEXCOUNT', ready, from, to) + call('ZLEXCOUNT', scheduled, from, to)
end

local function is_full(group, earlier)
    if not group.max_depth or (group.state or '') ~= '' then return false end
    return depth_of(group.queue) + (earlier and earlier[group.queue] or 0) >= group.max_depth
end

local function is_stale(group)
    for _, pair in ipairs(group.expected or {}) do
        local version, expires = match(call('HGET', document, pair[1]) or '', '^(%d+) (%d+)')
        if (version and tonumber(expires) > now and version or '0') ~= pair[2] then return true end
    end
    return false
end

local function refusal(group, earlier)
    if is_stale(group) then return 'STALE' end
    local seen = seen_before(group, earlier)
    if seen then return seen end
    if name_taken(group, earlier) then return 'NAME_TAKEN' end
    if group.overflow == 'reject' and is_full(group, earlier) then return 'QUEUE_FULL' end
    return nil
end

local function remember(group, id)
    if group.name ~= '' then call('HSET', name, group.name, id) end
    if group.correlation ~= NONE then call('ZADD', correlation, 0, group.correlation .. id) end
    if group.dedup == '' then return end
    local expires = group.window == NONE and NEVER or whole(now + tonumber(group.window))
    call('HSET', dedup, group.dedup, id .. ' ' .. group.digest .. ' ' .. expires)
    if expires ~= NEVER then call('ZADD', dedup_until, expires, group.dedup) end
    if has(group.flags, UNIQUE) then call('HSET', unique, id, group.dedup) end
end

-- Ends a message that is never delivered, as dead or final.
local function end_at_once(t, state, reason)
    t.flags = bit.band(t.flags, bit.bnot(HELD))
    record(t, 'publish', state, {reason = reason ~= '' and reason or nil})
    local flags = t.flags
    if state == 'dead' then put_dead(t, now, reason) end
    t.flags = flags
    over(t, state, reason ~= '' and reason or nil)
end

-- Writes the id of the parent into the meta of a copy, in as many characters.
local function adopt(text, parent)
    local length, start = match(text, '^%x+ %S+ (%d+) %d+ ()')
    local first, last = string.find(text, PARENT, start + length, true)
    if not first then return text end
    local id = format('"parent_id":%19s', whole(tonumber(parent, 16)))
    return sub(text, 1, first - 1) .. id .. sub(text, last + 1)
end

local function new_ticket(group, id)
    return {
        id = id, queue = group.queue, rank = group.rank, attempts = 0, deliveries = 0,
        expires = group.expires_text, flags = group.flags, key = group.key, own = group.own,
        position = NONE, type = group.type,
    }
end

local function place_ticket(group, id, full)
    local t = new_ticket(group, id)
    if full then
        end_at_once(t, 'dead', 'overflow')
    elseif (group.state or '') ~= '' then
        end_at_once(t, group.state, group.reason)
    elseif group.later then
        put_scheduled(t, whole(group.due_at))
    elseif has(t.flags, HELD) then
        put_scheduled(t)
    elseif group.key ~= NONE then
        get_in_line(t, id)
    else
        put_ready(t)
    end
end

local function publish_one(group, text, parent)
    local refused = refusal(group)
    if refused then return refused end
    local full = is_full(group)
    local id = hex(call('HINCRBY', fact, 'message', 1))
    call('HSET', message, id, group.before .. (parent and adopt(text, parent) or text))
    remember(group, id)
    place_ticket(group, id, full)
    if parent and not full and has(group.flags, HELD) then call('HSET', hold, id, DECISION) end
    for _, copy in ipairs(group.copies or {}) do
        for place = copy.first, copy.last do publish_one(copy, ARGV[place], id) end
    end
    return id
end

-- Returns one outcome per entry, or one for a whole group of plain ones.
local function publish(groups)
    local outcomes = {}
    for _, group in ipairs(groups) do
        if group.bare and not group.later and group.expires_text == NEVER then
            outcomes[#outcomes + 1] = publish_bare(group)
        else
            for place = group.first, group.last do
                outcomes[#outcomes + 1] = publish_one(group, ARGV[place])
            end
        end
    end
    return outcomes
end

-- Returns the refusals without writing anything.
local function refusals(groups)
    local earlier, outcomes, any = {}, {}, false
    for _, group in ipairs(groups) do
        for _ = group.first, group.last do
            local refused = refusal(group, earlier)
            -- A refused entry and a duplicate write nothing that later ones could meet.
            if not refused then
                if group.dedup ~= '' then earlier['d' .. group.dedup] = group.digest end
                if group.name ~= '' then earlier['n' .. group.name] = true end
                earlier[group.queue] = (earlier[group.queue] or 0) + 1
            elseif sub(refused, 1, 2) == 'd ' then
                refused = nil
            end
            outcomes[#outcomes + 1] = refused or ''
            any = any or refused
        end
    end
    return any and outcomes
end
