-- keys: schedule
-- with: publishing
-- ARGV: now, schedule, its tick as read, the next tick, then entry groups.
local text = call('HGET', schedule, ARGV[2])
local paused, next_at, rest = match(text or '', '^(%d) (%d+) %S+ ()')
if paused ~= '0' or next_at ~= ARGV[3] then return woke(0) end
publish(groups_from(5))
call('HSET', schedule, ARGV[2], '0 ' .. ARGV[4] .. ' ' .. ARGV[3] .. ' ' .. sub(text, rest))
return woke(1)
