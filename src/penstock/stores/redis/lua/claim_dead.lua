-- with: lease
-- ARGV: now, limit, length, consumer, number of types, types, queues. Oldest dead first.
local limit, length, consumer = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local wanted, filtered, found = {}, ARGV[5] ~= '0', {}
for place = 6, 5 + ARGV[5] do wanted[ARGV[place]] = true end

local function pick(queue)
    local from, to = '[' .. queue, '(' .. queue .. 'g'
    local count = 0
    repeat
        local members = call('ZRANGEBYLEX', dead_line, from, to, 'LIMIT', 0, 1000)
        for _, member in ipairs(members) do
            if count < limit and (not filtered or wanted[sub(member, 37)]) then
                count = count + 1
                found[#found + 1] = member
            end
        end
        from = '(' .. (members[#members] or '')
    until #members < 1000 or count == limit
end

for place = 6 + ARGV[5], #ARGV do pick(ARGV[place]) end
if #found == 0 then return {} end
table.sort(found, function(a, b) return sub(a, 9, 36) < sub(b, 9, 36) end)
local fence = whole(call('HINCRBY', fact, 'fence', 1))
local until_text = whole(now + length)
local reply, ids = {}, {}
for place = 1, math.min(limit, #found) do
    local member = found[place]
    local id = sub(member, 23, 36)
    local t = dead_of(id)
    local own = tonumber(t.own) or length
    local moment = whole(now + own)
    t.flags = bit.bor(t.flags, FROM_DEAD)
    t.fence, t.claimed_at, t.length, t.consumer = fence, now_text, whole(own), consumer
    keep_lease(t)
    call('ZADD', lease_until, moment, id)
    call('ZREM', dead_line, member)
    ids[place] = id
    reply[2 * place - 1] = id
    reply[2 * place] = t.attempts .. ' ' .. t.deliveries .. ' ' .. t.flags .. ' ' .. moment
end
return {fence, until_text, reply, call('HMGET', message, unpack(ids))}
