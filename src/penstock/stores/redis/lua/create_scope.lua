-- keys: scope scope_name queue queue_name
-- with: audit
-- ARGV: now, its name field, its text, the name of its dead-letter queue, and that queue's text
-- without the scope number.
if call('HEXISTS', scope_name, ARGV[2]) == 1 then return 0 end
local id = call('HINCRBY', fact, 'scope', 1)
local dead_letters = format('%08x', call('HINCRBY', fact, 'queue', 1))
call('HSET', scope, id, ARGV[3])
call('HSET', queue, dead_letters, '{"scope":' .. id .. ARGV[5])
call('HSET', queue_name, id .. ':' .. ARGV[4], dead_letters)
call('HSET', scope_name, ARGV[2], id)
call('HINCRBY', fact, 'directory', 1)
acted()
return id
