-- with: lease
-- ARGV: now, the queues.
local since = {}
for place = 2, #ARGV do
    local member = of_queue(ready, ARGV[place], 1)[1]
    local text = member and call('HGET', message, sub(member, 23, 36))
    local told = text and heading(text)
    since[#since + 1] = told and (told.run_at ~= NONE and told.run_at or told.created) or ''
end
return since
