-- with: lease
-- ARGV: now, the queues.
local since = {}
for place = 2, #ARGV do
    local member = of_queue(ready, ARGV[place], 1)[1]
    local text = member and call('HGET', message, sub(member, 23, 36))
    local found = text and heading(text)
    since[#since + 1] = found and (found.run_at ~= NONE and found.run_at or found.created) or ''
end
return since
