-- keys: step step_line
-- ARGV: now, id.
local id, found = ARGV[2], {}
for _, member in ipairs(call('ZRANGEBYLEX', step_line, '[' .. id, '(' .. id .. 'g')) do
    found[#found + 1] = call('HGET', step, id .. sub(member, 23))
end
return {now_text, found}
