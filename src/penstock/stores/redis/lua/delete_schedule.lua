-- keys: schedule schedule_name
-- with: audit
-- ARGV: now, schedule, its name field.
if call('HDEL', schedule, ARGV[2]) == 0 then return 0 end
call('HDEL', schedule_name, ARGV[3])
acted()
return 1
