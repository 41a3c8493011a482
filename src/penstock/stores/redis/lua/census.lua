-- with: lease ids
-- now. Every message there is is looked at, while nothing else goes on.
local tallies = {}

local function count(queue_id, place, id)
    local key = queue_id .. ' ' .. place
    local tally = tallies[key]
    if not tally then
        tally = {0, 0, 0}
        tallies[key] = tally
    end
    local number = tonumber(id, 16)
    tally[1] = tally[1] + 1
    tally[2] = tally[2] + ((number % 1000003) * (number % 1000033)) % 1000000007
    -- Sums outgrow what is exact.
    if tally[2] >= 2 ^ 40 then tally[2], tally[3] = tally[2] - 2 ^ 40, tally[3] + 1 end
end

local function each_member(set, place, from)
    local start = 0
    repeat
        local members = call('ZRANGE', set, start, start + 999)
        for _, member in ipairs(members) do
            count(sub(member, 1, 8), place, sub(member, from, from + 13))
        end
        start = start + 1000
    until #members < 1000
end

local seen = 0
repeat
    local ids, numbers = ids_from(seen, 1, 500)
    for place, value in ipairs(#ids > 0 and call('HMGET', message, unpack(ids)) or {}) do
        if value then count(match(value, '^%d+ %x+ %S+ %S+ (%x+)'), 'message', ids[place]) end
    end
    seen = numbers[#numbers]
until #ids < 500
each_member(ready, 'ready', 23)
each_member(scheduled, 'scheduled', 9)
each_member(dead_line, 'dead', 23)
for _, id in ipairs(call('HKEYS', lease)) do
    count(lease_of(id, call('HGET', lease, id)).queue, 'lease', id)
end

local position = '-'
repeat
    local entries = call('XRANGE', history, position, '+', 'COUNT', 1000)
    for _, entry in ipairs(entries) do
        local row = entry[2][2]
        local state, id, queue_id = match(row, '^%a+ (%a+) %d+ %S+ %S+ %S+ %S+ %S+ (%x+) (%S+)')
        if FINAL[state] then
            if queue_id == NONE then
                queue_id = match(row, '^%a+ %a+ %d+ %S+ %S+ %S+ %S+ %S+ %x+ %- %d+ %a %d+ %d+ (%x+)')
            end
            count(queue_id, 'ended', id)
        end
        position = '(' .. entry[1]
    end
until #entries < 1000

local told = {}
for key, tally in pairs(tallies) do
    told[#told + 1] = {key, tally[1], whole(tally[2]), tally[3]}
end
return told
