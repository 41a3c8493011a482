-- keys: gap
-- ARGV: now, the server's run id, whether it may have lost acknowledged writes. After a restart,
-- skips ids that may have been used and lost.
local before = call('HGET', fact, 'server')
if before == ARGV[2] then return 0 end
call('HSET', fact, 'server', ARGV[2])
if not before then return 0 end
local last = tonumber(call('HGET', fact, 'message') or '0')
call('ZADD', gap, last + 1, whole(last + 1) .. ' ' .. whole(last + 1048576))
for _, number in ipairs({'fence', 'message', 'position'}) do
    call('HINCRBY', fact, number, 1048576)
end
if ARGV[3] == '1' then call('HINCRBY', fact, 'epoch', 1) end
return 1
