-- keys: dedup
-- ARGV: now, key.
local text = call('HGET', dedup, ARGV[2])
if not text or tonumber(match(text, '%d+$')) <= now then return false end
return match(text, '^%x+')
