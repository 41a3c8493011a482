-- with: dead
-- ARGV: now, queue, moment, limit. Ends dead letters that died before the moment.
local count, oldest = 0, hex(tonumber(ARGV[3]))
for _, member in ipairs(of_queue(dead_line, ARGV[2], tonumber(ARGV[4]))) do
    if sub(member, 9, 22) >= oldest then break end
    finish(take_dead(sub(member, 23, 36)), 'expire', 'expired', 'dead_retention')
    count = count + 1
end
return woke(count)
