-- keys: cursor
-- ARGV: now, name, epoch, message and history.
call('HSET', cursor, ARGV[2], ARGV[3] .. ' ' .. now_text)
return 1
