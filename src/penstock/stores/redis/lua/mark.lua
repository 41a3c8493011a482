-- with: lease
-- ARGV: now, then id, fence, begin, percent and note of each.
local answers = {}

-- "begun_at percent note"; a present note begins with a marker letter.
local MARK = '^(%d+) (%S+) (.*)$'

local function keep_mark(t, percent, note)
    local begun_at, percent_before, note_before = match(call('HGET', mark, t.id) or '', MARK)
    if percent == '' then percent = percent_before or NONE end
    if note == '' then note = note_before or '' end
    call('HSET', mark, t.id, table.concat({begun_at or now_text, percent, note}, ' '))
    keep_lease(t)
    return 'done'
end

local function begin(t)
    t.flags = bit.band(t.flags, bit.bnot(UNBEGUN))
    return keep_mark(t, '', '')
end

for place = 2, #ARGV, 5 do
    local id, fence, percent, note = ARGV[place], ARGV[place + 1], ARGV[place + 3], ARGV[place + 4]
    local t = held(id, fence)
    if not t then
        answers[#answers + 1] = explain(id, fence, '')
    elseif ARGV[place + 2] == '1' then
        answers[#answers + 1] = begin(t)
    else
        answers[#answers + 1] = keep_mark(t, percent, note)
    end
end
return answers
