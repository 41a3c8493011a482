-- with: lease
-- now, then id, fence, begin, percent and note of each.
local answers = {}

local function begin(t)
    if t.deliveries < 2 then return 'invalid claimed' end
    t.flags = bit.band(t.flags, bit.bnot(UNBEGUN))
    keep_lease(t)
    return 'done'
end

local function progress(t, percent, note)
    local before = call('HGET', mark, t.id) or '- '
    if percent == '' then percent = match(before, '^%S+') end
    -- A note that is given begins with a letter that says so.
    note = note == '' and sub(before, #match(before, '^%S+') + 2) or note
    call('HSET', mark, t.id, percent .. ' ' .. note)
    keep_lease(t)
    return 'done'
end

for place = 2, #ARGV, 5 do
    local id, fence, percent, note = ARGV[place], ARGV[place + 1], ARGV[place + 3], ARGV[place + 4]
    local t = held(id, fence)
    if not t then
        answers[#answers + 1] = explain(id, fence, '')
    elseif ARGV[place + 2] == '1' then
        answers[#answers + 1] = begin(t)
    else
        answers[#answers + 1] = progress(t, percent, note)
    end
end
return answers
