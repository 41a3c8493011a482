-- keys: dedup dedup_until unique
-- ARGV: now, then for each key: field, text, when it expires, the id it is unique for.
for place = 2, #ARGV, 4 do
    local field, text, expires, id = unpack(ARGV, place, place + 3)
    if call('HSETNX', dedup, field, text) == 1 then
        if expires ~= NEVER then call('ZADD', dedup_until, expires, field) end
        if id ~= '' then call('HSET', unique, id, field) end
    end
end
return 0
