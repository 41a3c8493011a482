-- with: lease
-- ARGV: now, limit, length, consumer, begins, number of types, types, queues.
local limit, length, consumer = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local begins = ARGV[5] == '1'
local types, queues = {}, {}
for place = 7, #ARGV do
    local list = place < 7 + ARGV[6] and types or queues
    list[#list + 1] = ARGV[place]
end

-- Without the type index: skips other types.
local function scan(queue, wanted, found)
    local from, to = '[' .. queue, '(' .. queue .. 'g'
    local count = 0
    repeat
        local members = call('ZRANGEBYLEX', ready, from, to, 'LIMIT', 0, 1000)
        for _, member in ipairs(members) do
            if wanted[sub(member, 37)] and count < limit then
                count = count + 1
                found[#found + 1] = member
            end
        end
        from = '(' .. (members[#members] or '')
    until #members < 1000 or count == limit
end

local function of_types(queue, found)
    local wanted = {}
    for _, type_ in ipairs(types) do wanted[type_] = true end
    if not indexed then return scan(queue, wanted, found) end
    for type_ in pairs(wanted) do
        for _, member in ipairs(of_queue(typed, queue .. type_hash(type_), limit)) do
            if sub(member, 53) == type_ then
                found[#found + 1] = queue .. sub(member, 25)
            end
        end
    end
end

-- The first tickets; several queues or types are merged by rank and id.
local function picked()
    if #queues == 1 and #types == 0 then return of_queue(ready, queues[1], limit) end
    local found = {}
    for _, queue in ipairs(queues) do
        if #types > 0 then
            of_types(queue, found)
        else
            for _, member in ipairs(of_queue(ready, queue, limit)) do found[#found + 1] = member end
        end
    end
    table.sort(found, function(a, b) return sub(a, 9, 36) < sub(b, 9, 36) end)
    local first = {}
    for place = 1, math.min(limit, #found) do first[place] = found[place] end
    return first
end

local members = picked()
if #members == 0 then return woke({}) end
local ids = {}
for place, member in ipairs(members) do ids[place] = sub(member, 23, 36) end
local tickets = call('HMGET', ticket, unpack(ids))
local leased = call('HMGET', lease, unpack(ids))

local until_text = whole(now + length)
local after = ' 0 1 ' .. NEVER .. ' 0 - - - '
local count, fence, plain, special = 0, nil, nil, nil
local reply, leases, untils, remembered, expired = {}, {}, {}, {}, {}

local function begin()
    fence = whole(call('HINCRBY', fact, 'fence', 1))
    plain = fence .. ' p ' .. now_text .. ' ' .. whole(length) .. ' '
    special = fence .. ' x ' .. now_text .. ' '
end

local function hold(id, text, moment, said)
    count = count + 1
    leases[2 * count - 1], leases[2 * count] = id, text
    untils[2 * count - 1], untils[2 * count] = moment, id
    reply[2 * count - 1], reply[2 * count] = id, said
end

local function hold_remembered(t)
    t.deliveries = t.deliveries + 1
    if begins and t.deliveries > 1 then t.flags = bit.bor(t.flags, UNBEGUN) end
    local own = tonumber(t.own) or length
    local moment = whole(now + own)
    hold(t.id, special .. whole(own) .. ' ' .. ticket_text(t) .. consumer, moment,
        t.attempts .. ' ' .. t.deliveries .. ' ' .. t.flags .. ' ' .. moment)
    remembered[#remembered + 1] = t
end

for place, member in ipairs(members) do
    local id, text = ids[place], tickets[place]
    local t = text and ticket_of(id, text)
    if leased[place] then
        -- An interrupted script left a stale ticket: the lease decides.
    elseif t and tonumber(t.expires) <= now then
        expired[#expired + 1] = t
    else
        if not fence then begin() end
        if t then
            hold_remembered(t)
        else
            local type_ = sub(member, 37)
            hold(id, plain .. sub(member, 1, 8) .. ' ' .. sub(member, 9, 22) .. after .. #type_ ..
                ' ' .. type_ .. consumer, until_text, '')
        end
    end
end

in_parts(leases, 'HSET', lease)
in_parts(untils, 'ZADD', lease_until)
if #queues == 1 and #types == 0 then
    call('ZREMRANGEBYLEX', ready, '[' .. members[1], '[' .. members[#members])
else
    in_parts(members, 'ZREM', ready)
end
if indexed then
    local entries = {}
    for place, member in ipairs(members) do
        entries[place] = typed_member(sub(member, 1, 8), sub(member, 9, 22), ids[place],
            sub(member, 37))
    end
    in_parts(entries, 'ZREM', typed)
end
for _, t in ipairs(remembered) do forget(t) end
-- After the claim: ending one may free a key and make another message of this queue ready.
for _, t in ipairs(expired) do
    forget(t)
    finish(t, 'expire', 'expired')
end
if not fence then return woke({'again'}) end
local held_ids = {}
for place = 1, count do held_ids[place] = reply[2 * place - 1] end
return woke({fence, until_text, reply, call('HMGET', message, unpack(held_ids))})
