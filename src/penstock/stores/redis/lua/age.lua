-- with: ticket
-- ARGV: now, queue, waited, limit. Moves the longest-waiting tickets to the next existing rank.
local queue, before, limit = ARGV[2], now - tonumber(ARGV[3]), tonumber(ARGV[4])
local found, above, place = {}, nil, queue
for _ = 1, 64 do
    local first = call('ZRANGEBYLEX', ready, '(' .. place, '(' .. queue .. 'g', 'LIMIT', 0, 1)[1]
    if not first then break end
    local rank = sub(first, 9, 22)
    place = queue .. rank .. 'g'
    if above then
        for _, member in ipairs(of_queue(ready, queue .. rank, limit)) do
            local id = sub(member, 23, 36)
            local created = tonumber(match(call('HGET', message, id), '^%d+'))
            if created <= before then found[#found + 1] = {id, above} end
        end
    end
    above = rank
end
table.sort(found, function(a, b) return a[1] < b[1] end)
local moved = math.min(limit, #found)
for each = 1, moved do
    local t = waiting(found[each][1])
    take_ready(t)
    t.rank = found[each][2]
    put_ready(t)
end
return moved
