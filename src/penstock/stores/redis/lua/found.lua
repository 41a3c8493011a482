-- ARGV: now, schema, secret. Initialises a new store once, and raises the schema of an older one.
call('HSETNX', fact, 'secret', ARGV[3])
if tonumber(ARGV[2]) > tonumber(call('HGET', fact, 'schema') or '0') then
    call('HSET', fact, 'schema', ARGV[2])
end
return call('HMGET', fact, 'schema', 'secret')
