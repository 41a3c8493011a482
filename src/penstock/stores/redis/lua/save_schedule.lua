-- keys: schedule schedule_name
-- with: audit
-- now, the field of its name, paused, next tick, queue and plan. When it last fired stays.
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
