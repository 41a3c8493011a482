-- keys: worker
-- ARGV: now, worker, its description.
local text = call('HGET', worker, ARGV[2])
local started, stopping = match(text or '', '^(%d+) %d+ (%d) ')
call('HSET', worker, ARGV[2], table.concat({
    started or now_text, now_text, stopping or '0', ARGV[3],
}, ' '))
return 1
