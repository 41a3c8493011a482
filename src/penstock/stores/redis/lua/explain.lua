-- with: lease
-- ARGV: now, then id, fence and verb of each.
local answers = {}
for place = 2, #ARGV, 3 do
    answers[#answers + 1] = explain(ARGV[place], ARGV[place + 1], ARGV[place + 2])
end
return answers
