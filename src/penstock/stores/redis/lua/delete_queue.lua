-- keys: queue queue_name schedule schedule_name
-- with: lease audit
-- ARGV: now, queue, its old text, its new text, its name field, then id and name field of each
-- schedule.
local queue_id = ARGV[2]
for _, set in ipairs({ready, scheduled, dead_line}) do
    if #of_queue(set, queue_id, 1) > 0 then return 'holds' end
end
for _, text in ipairs(call('HVALS', lease)) do
    if match(text, '^%d+ %a %d+ %d+ (%x+)') == queue_id then return 'holds' end
end
if call('HGET', queue, queue_id) ~= ARGV[3] then return 'again' end
call('HSET', queue, queue_id, ARGV[4])
if call('HGET', queue_name, ARGV[5]) == queue_id then call('HDEL', queue_name, ARGV[5]) end
for place = 6, #ARGV, 2 do
    call('HDEL', schedule, ARGV[place])
    call('HDEL', schedule_name, ARGV[place + 1])
end
call('HINCRBY', fact, 'directory', 1)
acted()
return 'done'
