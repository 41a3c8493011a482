-- keys: dedup dedup_until result result_until document document_line document_until act
-- with: awaiting
-- ARGV: now, limit of each.
local keys = call('ZRANGEBYSCORE', dedup_until, '-inf', now_text, 'LIMIT', 0, ARGV[2])
for _, key in ipairs(keys) do
    local text = call('HGET', dedup, key)
    if text and tonumber(match(text, '%d+$')) <= now then call('HDEL', dedup, key) end
    call('ZREM', dedup_until, key)
end
local ids = call('ZRANGEBYSCORE', result_until, '-inf', now_text, 'LIMIT', 0, ARGV[2])
for _, id in ipairs(ids) do
    if is_awaited(id) then
        call('ZADD', result_until, whole(now + 3600000000), id)
    else
        call('HDEL', result, id)
        call('ZREM', result_until, id)
    end
end
local old = call('ZRANGEBYSCORE', document_until, '-inf', now_text, 'LIMIT', 0, ARGV[2])
for _, field in ipairs(old) do
    call('HDEL', document, field)
    call('ZREM', document_line, field)
    call('ZREM', document_until, field)
end
-- Keeps audit entries of one year.
local acts = 0
for _, each in ipairs(call('XRANGE', act, '-', '+', 'COUNT', ARGV[2])) do
    if tonumber(match(each[2][2], '^%d+')) >= now - 31536000000000 then break end
    call('XDEL', act, each[1])
    acts = acts + 1
end
return #keys + #ids + #old + acts
