-- with: ticket ready_since
-- ARGV: now, queue, waited, limit, rank to start at or ''. Finds the oldest tickets below another
-- rank that have been ready for that long, in 64 ranks. Returns the rank to go on with, or '', and
-- id, rank and rank above of each.
local queue, before, limit = ARGV[2], now - tonumber(ARGV[3]), tonumber(ARGV[4])
local found, above, place = {}, nil, queue .. ARGV[5]
for _ = 1, 65 do
    local first = call('ZRANGEBYLEX', ready, '(' .. place, '(' .. queue .. 'g', 'LIMIT', 0, 1)[1]
    if not first then
        above = ''
        break
    end
    local rank = sub(first, 9, 22)
    place = queue .. rank .. 'g'
    if above then
        for _, member in ipairs(of_queue(ready, queue .. rank, limit)) do
            local id = sub(member, 23, 36)
            if ready_since(id) <= before then found[#found + 1] = {id, rank, above} end
        end
    end
    above = rank
end
table.sort(found, function(a, b) return a[1] < b[1] end)
local reply = {above}
for each = 1, math.min(limit, #found) do
    for _, word in ipairs(found[each]) do reply[#reply + 1] = word end
end
return reply
