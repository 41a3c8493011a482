-- keys: step step_line
-- ARGV: now, ids.
local found = {}
for place = 2, #ARGV do
    local id = ARGV[place]
    for _, member in ipairs(call('ZRANGEBYLEX', step_line, '[' .. id, '(' .. id .. 'g')) do
        local text = call('HGET', step, id .. sub(member, 23))
        if match(text, '^gather ') or match(text, '^enqueue ') then
            found[#found + 1] = text
        end
    end
end
return found
