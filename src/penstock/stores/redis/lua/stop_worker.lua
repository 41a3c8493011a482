-- keys: worker
-- with: audit
-- ARGV: now, worker.
local text = call('HGET', worker, ARGV[2])
local started, seen, said = match(text or '', '^(%d+) (%d+) %d (.*)$')
if not started then return 0 end
call('HSET', worker, ARGV[2], table.concat({started, seen, '1', said}, ' '))
acted()
return 1
