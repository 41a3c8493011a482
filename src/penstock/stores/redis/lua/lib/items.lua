-- Items of a change: one operation on one stored message each.
-- keys: edge edge_state hold
-- with: publishing lease

local ALLOWED = {
    redrive = {dead = true},
    cancel = {ready = true, scheduled = true, claimed = true},
    purge = {ready = true, scheduled = true, dead = true},
    replace = {ready = true, scheduled = true, dead = true},
    rerank = {ready = true, scheduled = true},
}

local function answer(kind, state, id, code)
    local number = id and whole(tonumber(id, 16))
    return table.concat({kind, state or NONE, number or NONE, code or NONE}, ' ')
end

local function noted(text) return text ~= '' and text or nil end

-- An item: verb, id, state as seen, history position, reason, action, rank, number of groups.
local function item_at(place)
    local item = {
        verb = ARGV[place], id = ARGV[place + 1], seen = ARGV[place + 2],
        as_of = tonumber(ARGV[place + 3]), reason = ARGV[place + 4], by = ARGV[place + 5],
        rank = ARGV[place + 6], last = place + 7,
    }
    if ARGV[place + 7] == '1' then
        item.group = group_at(place + 8)
        item.last = item.group.last
    end
    return item
end

local function is_changed(item)
    local last = match(call('HGET', story, item.id) or '', '%d+$')
    return item.as_of and last and tonumber(last) > item.as_of
end

local function take_seen(item)
    if item.seen == 'dead' then return take_dead(item.id) end
    local t = waiting(item.id)
    if item.seen == 'ready' then take_ready(t) else take_scheduled(t) end
    leave_line(t)
    return t
end

local function publish_copy(item, state)
    if not state then return answer('missing') end
    if not FINAL[state] then return answer('invalid', state) end
    local outcome = publish_one(item.group, ARGV[item.group.first])
    local seen = match(outcome, '^d (%x+)$')
    if seen then return answer('already', state, seen) end
    if match(outcome, '^%u') then return answer('invalid', nil, nil, outcome) end
    return answer('done', state, outcome)
end

local function redrive_item(item)
    put_back(take_dead(item.id), noted(item.by))
    return answer('done', 'ready')
end

local function cancel_item(item)
    if item.seen == 'claimed' then
        local t = lease_of(item.id, call('HGET', lease, item.id))
        t.flags = bit.bor(t.flags, CANCEL_REQUESTED)
        keep_lease(t)
        return answer('done', 'claimed')
    end
    local t = take_seen(item)
    local reason = item.verb == 'purge' and 'purged' or 'requested'
    record(t, 'cancel', 'cancelled', {reason = reason, error = noted(item.by)})
    over(t, 'cancelled', reason)
    return answer('done', 'cancelled')
end

local function rerank_item(item)
    local t = waiting(item.id)
    if t.rank == item.rank then return answer('already', item.seen) end
    if item.seen == 'ready' then
        take_ready(t)
        t.rank = item.rank
        put_ready(t)
    else
        t.rank = item.rank
        call('HSET', ticket, t.id, ticket_text(t))
    end
    return answer('done', item.seen)
end

-- Keeps the turn in the line of the same ordering key. Returns false if there is none.
local function keep_turn(old, group, id, seen, in_line)
    if not has(old.flags, KEYED) or old.key ~= group.key or seen == 'dead' then return false end
    local t = new_ticket(group, id)
    if is_head(old) then
        call('HSET', head, t.key, id)
        if group.later then put_scheduled(t, whole(group.due_at)) else put_ready(t) end
    elseif group.later then
        t.position = in_line ~= NONE and in_line or old.id
        put_scheduled(t, whole(group.due_at))
    else
        get_in_line(t, in_line ~= NONE and in_line or old.id)
    end
    return true
end

-- True if holds, steps or other messages know it by its id, so that it must keep it. The steps of
-- a dead message are given up: its replacement runs from the start.
local function is_involved(t, seen)
    if has(t.flags, HELD) or has(t.flags, STEPS) and seen ~= 'dead' then return true end
    if not has(t.flags, AWAITED) then return false end
    for _, member in ipairs(call('ZRANGEBYLEX', edge, '[' .. t.id, '(' .. t.id .. 'g')) do
        local waiter = sub(member, 15, 28)
        if call('HEXISTS', hold, waiter) == 1
            and not call('HGET', edge_state, waiter .. sub(member, 29) .. t.id) then return true end
    end
    return false
end

-- Publishes the replacement and ends the old message, without a callback.
local function replace_item(item)
    local group = item.group
    local owner = group.name ~= '' and call('HGET', name, group.name)
    if owner and owner ~= item.id then return answer('invalid', nil, nil, 'NAME_TAKEN') end
    local seen = item.seen == 'dead' and dead_of(item.id) or waiting(item.id)
    if is_involved(seen, item.seen) then
        return answer('invalid', item.seen, nil, 'AWAITED')
    end
    local old = take_seen(item)
    local in_line = old.position
    local id = hex(call('HINCRBY', fact, 'message', 1))
    call('HSET', message, id, group.before .. ARGV[group.first])
    remember(group, id)
    local detail = 'by ' .. whole(tonumber(id, 16)) .. (item.by ~= '' and ' ' .. item.by or '')
    record(old, 'cancel', 'cancelled', {reason = item.reason, error = detail})
    if not keep_turn(old, group, id, item.seen, in_line) then place_ticket(group, id, false) end
    free_keys(old)
    return answer('done', 'cancelled', id)
end

local APPLY = {
    redrive = redrive_item, cancel = cancel_item, purge = cancel_item, replace = replace_item,
    rerank = rerank_item,
}

local function apply_item(item)
    local state = state_of(item.id)
    if item.verb == 'redrive' and item.group and FINAL[item.seen] then
        return publish_copy(item, state)
    end
    if not ALLOWED[item.verb][item.seen] then return answer('invalid', item.seen) end
    if not state then return answer('missing') end
    if state ~= item.seen and (FINAL[state] or state == 'claimed') then
        return answer('invalid', state)
    end
    if is_changed(item) then return answer('changed', state) end
    -- It became due meanwhile.
    if state ~= item.seen then return answer('busy', state) end
    return APPLY[item.verb](item)
end

-- Applies the items at these arguments and returns their answers.
local function apply_items(place, stop)
    local answers = {}
    while place < stop do
        local item = item_at(place)
        answers[#answers + 1] = apply_item(item)
        place = item.last + 1
    end
    return answers
end
