-- with: ticket
-- ARGV: now, queue, types. Without the type index, checks the first few in line.
local queue, wanted = ARGV[2], {}
for place = 3, #ARGV do
    wanted[ARGV[place]] = true
    if indexed then
        for _, member in ipairs(of_queue(typed, queue .. type_hash(ARGV[place]), 10)) do
            if sub(member, 53) == ARGV[place] then return 1 end
        end
    end
end
for _, member in ipairs(indexed and {} or of_queue(ready, queue, 1000)) do
    if wanted[sub(member, 37)] then return 1 end
end
return 0
