-- keys: agent
-- ARGV: now, agent, every, by.
local text = call('HGET', agent, ARGV[2])
if text then
    local at, length, start = match(text, '^(%d+) (%d+) ()')
    local by = sub(text, start, start + length - 1)
    local age = now - tonumber(at)
    -- A tick more than `every` in the future was claimed before the clock was set back.
    if by ~= ARGV[4] and age < tonumber(ARGV[3]) and age >= -tonumber(ARGV[3]) then return 0 end
    text = sub(text, start + length)
end
call('HSET', agent, ARGV[2], now_text .. ' ' .. #ARGV[4] .. ' ' .. ARGV[4] .. (text or ''))
return 1
