-- keys: step step_line
-- with: lease audit
-- ARGV: now, id, position. Deletes the steps of a dead message from the position on.
local id, found = ARGV[2], {}
if state_of(id) ~= 'dead' then return {} end
local from = '[' .. id .. format('%08x', ARGV[3])
for _, member in ipairs(call('ZRANGEBYLEX', step_line, from, '(' .. id .. 'g')) do
    local field = id .. sub(member, 23)
    found[#found + 1] = call('HGET', step, field)
    call('HDEL', step, field)
    call('ZREM', step_line, member)
end
if #found > 0 then acted() end
return found
