-- with: ticket ready_since
-- ARGV: now, the queues.
local since = {}
for place = 2, #ARGV do
    local member = of_queue(ready, ARGV[place], 1)[1]
    since[#since + 1] = member and whole(ready_since(sub(member, 23, 36))) or ''
end
return since
