-- with: lease audit
-- ARGV: now, then id, verb, state, reason and result with a marker letter of each.
local function end_one(place)
    local id, reason, value = ARGV[place], ARGV[place + 3], ARGV[place + 4]
    local text = call('HGET', ticket, id)
    local t = text and ticket_of(id, text)
    if not t or not has(t.flags, HELD) or not take_scheduled(t) then
        local state = state_of(id)
        return state and 'invalid ' .. state or 'missing'
    end
    if value ~= '' then keep_result(t.id, t.queue, now, sub(value, 2)) end
    finish(t, ARGV[place + 1], ARGV[place + 2], reason ~= '' and sub(reason, 2) or nil)
    return 'done'
end

local answers = {}
for place = 2, #ARGV, 5 do answers[#answers + 1] = end_one(place) end
acted_if(answers)
return woke(answers)
