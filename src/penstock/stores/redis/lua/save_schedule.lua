-- keys: schedule schedule_name
-- with: audit
-- ARGV: now, its name field, paused, next tick, queue and plan. Keeps when it last fired.
local id = call('HGET', schedule_name, ARGV[2])
local last = id and match(call('HGET', schedule, id), '^%d %d+ (%S+)') or NONE
if not id then
    id = whole(call('HINCRBY', fact, 'schedule', 1))
    call('HSET', schedule_name, ARGV[2], id)
end
local text = table.concat({ARGV[3], ARGV[4], last, ARGV[5]}, ' ')
call('HSET', schedule, id, text)
acted()
return {id, text}
