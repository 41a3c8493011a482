-- keys: agent
-- ARGV: now, agent, by, result.
local text = call('HGET', agent, ARGV[2]) or ''
local length, start = match(text, '^%d+ (%d+) ()')
if not start or sub(text, start, start + length - 1) ~= ARGV[3] then return 0 end
call('HSET', agent, ARGV[2], sub(text, 1, start + length - 1) .. ' ' .. ARGV[4])
return 1
