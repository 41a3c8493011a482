-- with: lease audit
-- ARGV: now, then the ids.
local answers = {}
for place = 2, #ARGV do
    local t = take_dead(ARGV[place])
    local state = not t and state_of(ARGV[place])
    if t then finish(t, 'cancel', 'cancelled', 'purged') end
    answers[#answers + 1] = t and 'done' or (state and 'invalid ' .. state or 'missing')
end
acted_if(answers)
return woke(answers)
