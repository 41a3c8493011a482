-- keys: signal signal_line
-- ARGV: now, id.
local id, found = ARGV[2], {}
for _, member in ipairs(call('ZRANGEBYLEX', signal_line, '[' .. id, '(' .. id .. 'g')) do
    found[#found + 1] = sub(member, 15)
    found[#found + 1] = call('HGET', signal, member)
end
return found
