-- with: lease audit
-- ARGV: now, then the ids.
local function redrive_one(id)
    local t = take_dead(id)
    if not t then
        local state = state_of(id)
        return state and 'invalid ' .. state or 'missing'
    end
    put_back(t)
    return 'done'
end

local answers = {}
for place = 2, #ARGV do answers[#answers + 1] = redrive_one(ARGV[place]) end
acted_if(answers)
return woke(answers)
