-- ARGV: now, schema, secret. Initialises a new store once.
if call('HSETNX', fact, 'secret', ARGV[3]) == 1 then call('HSET', fact, 'schema', ARGV[2]) end
return call('HMGET', fact, 'schema', 'secret')
