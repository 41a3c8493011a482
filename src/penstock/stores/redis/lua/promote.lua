-- with: keys
-- ARGV: now, limit.
local ids = call('ZRANGEBYSCORE', due, '-inf', now_text, 'LIMIT', 0, ARGV[2])
for _, id in ipairs(ids) do
    local t = ticket_of(id, call('HGET', ticket, id))
    if has(t.flags, KEYED) and not is_head(t) then
        call('ZREM', due, id)
        get_in_line(t, t.position ~= NONE and t.position or id)
    elseif take_scheduled(t) then
        put_ready(t)
    end
end
return woke({#ids, now_text, call('ZRANGE', due, 0, 0, 'WITHSCORES')[2] or ''})
