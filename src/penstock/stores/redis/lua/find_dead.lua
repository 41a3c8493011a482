-- with: dead
-- ARGV: now, queues. Returns all their dead letters with types.
local found = {}
for place = 2, #ARGV do
    for _, member in ipairs(of_queue(dead_line, ARGV[place], -1)) do
        found[#found + 1] = sub(member, 23)
    end
end
return found
