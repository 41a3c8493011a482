-- keys: queue queue_name
-- with: audit
-- ARGV: now, its name field, its text.
if call('HEXISTS', queue_name, ARGV[2]) == 1 then return 0 end
local id = call('HINCRBY', fact, 'queue', 1)
local field = format('%08x', id)
call('HSET', queue, field, ARGV[3])
call('HSET', queue_name, ARGV[2], field)
call('HINCRBY', fact, 'directory', 1)
acted()
return id
