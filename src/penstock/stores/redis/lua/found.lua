-- now, schema, secret. What is there before anything else is, once.
if call('HSETNX', fact, 'secret', ARGV[3]) == 1 then call('HSET', fact, 'schema', ARGV[2]) end
return call('HMGET', fact, 'schema', 'secret')
