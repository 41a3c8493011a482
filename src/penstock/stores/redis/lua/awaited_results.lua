-- keys: edge_of result
-- ARGV: now, id.
local id, found = ARGV[2], {}
for _, field in ipairs(call('ZRANGEBYLEX', edge_of, '[' .. id, '(' .. id .. 'g')) do
    local value = call('HGET', result, sub(field, 29))
    if value then
        found[#found + 1] = sub(field, 29)
        found[#found + 1] = value
    end
end
return found
