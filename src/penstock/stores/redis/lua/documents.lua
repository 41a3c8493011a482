-- keys: document document_line
-- ARGV: now, lower and upper bound (kind and name), limit.
local found, after = {}, ARGV[2]
local limit = tonumber(ARGV[4])
while #found < limit * 2 do
    local fields = call('ZRANGEBYLEX', document_line, after, ARGV[3], 'LIMIT', 0, limit)
    for _, field in ipairs(fields) do
        local text = call('HGET', document, field)
        local expires = match(text, '^%d+ (%d+)')
        if tonumber(expires) > now and #found < limit * 2 then
            found[#found + 1] = field
            found[#found + 1] = text
        end
    end
    if #fields < limit then break end
    after = '(' .. fields[#fields]
end
return found
