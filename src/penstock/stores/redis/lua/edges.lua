-- keys: edge_of edge_state
-- ARGV: now, id.
local id, found = ARGV[2], {}
for _, field in ipairs(call('ZRANGEBYLEX', edge_of, '[' .. id, '(' .. id .. 'g')) do
    found[#found + 1] = sub(field, 15)
    found[#found + 1] = call('HGET', edge_state, field) or ''
end
return found
