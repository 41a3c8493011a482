-- keys: step step_line
-- with: history
-- ARGV: now, id. Returns the rows of the message and the time and fence of each step.
local id, found, rows = ARGV[2], {}, {}
for _, member in ipairs(call('ZRANGEBYLEX', step_line, '[' .. id, '(' .. id .. 'g')) do
    local text = call('HGET', step, id .. sub(member, 23))
    found[#found + 1] = match(text, '^%a+ %d+ %d %S+ (%d+ %d+)')
end
for place, row in ipairs(rows_of(id)) do rows[place] = row[2] end
return {rows, found}
