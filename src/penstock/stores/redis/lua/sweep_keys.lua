-- keys: dedup dedup_until result result_until
-- now, how many of each.
local keys = call('ZRANGEBYSCORE', dedup_until, '-inf', now_text, 'LIMIT', 0, ARGV[2])
for _, key in ipairs(keys) do
    local text = call('HGET', dedup, key)
    if text and tonumber(match(text, '%d+$')) <= now then call('HDEL', dedup, key) end
    call('ZREM', dedup_until, key)
end
local ids = call('ZRANGEBYSCORE', result_until, '-inf', now_text, 'LIMIT', 0, ARGV[2])
for _, id in ipairs(ids) do
    call('HDEL', result, id)
    call('ZREM', result_until, id)
end
return #keys + #ids
