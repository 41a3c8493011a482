-- keys: scope
-- with: audit
-- ARGV: now, scope, paused.
local text = call('HGET', scope, ARGV[2])
if text then call('HSET', scope, ARGV[2], ARGV[3] .. sub(text, 2)) end
call('HINCRBY', fact, 'directory', 1)
acted()
return 1
