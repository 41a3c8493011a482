-- with: lease
-- ARGV: now, then id, fence and length of each.
local answers = {}
for place = 2, #ARGV, 3 do
    local id, fence, length = ARGV[place], ARGV[place + 1], tonumber(ARGV[place + 2])
    local t = held(id, fence)
    if not t then
        answers[#answers + 1] = explain(id, fence, '')
    else
        local moment = math.max(tonumber(call('ZSCORE', lease_until, id)), now + length)
        t.length = whole(length)
        call('HSET', lease, id, lease_text(t, match(t.text, '^%d+ (%a)')))
        call('ZADD', lease_until, whole(moment), id)
        answers[#answers + 1] = 'extended ' .. whole(moment) .. ' ' .. t.flags
    end
end
return answers
