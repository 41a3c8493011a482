-- keys: queue queue_name
-- with: audit
-- ARGV: now, queue, its old text, its new text, its old and new name field.
if call('HGET', queue, ARGV[2]) ~= ARGV[3] then return 'again' end
local holder = call('HGET', queue_name, ARGV[6])
if ARGV[6] ~= '' and holder and holder ~= ARGV[2] then return 'taken' end
call('HSET', queue, ARGV[2], ARGV[4])
if ARGV[6] ~= ARGV[5] then
    if ARGV[6] ~= '' then call('HSET', queue_name, ARGV[6], ARGV[2]) end
    if call('HGET', queue_name, ARGV[5]) == ARGV[2] then call('HDEL', queue_name, ARGV[5]) end
end
call('HINCRBY', fact, 'directory', 1)
acted()
return 'done'
