-- keys: result result_until
-- ARGV: now, id.
local expires = call('ZSCORE', result_until, ARGV[2])
if not expires or tonumber(expires) <= now then return false end
return call('HGET', result, ARGV[2])
