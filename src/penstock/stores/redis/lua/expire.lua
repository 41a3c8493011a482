-- with: dead
-- ARGV: now, limit.
local ended_now = 0
for _, id in ipairs(call('ZRANGEBYSCORE', expiry, '-inf', now_text, 'LIMIT', 0, ARGV[2])) do
    local t = waiting(id)
    if take_ready(t) or take_scheduled(t) then
        leave_line(t)
        finish(t, 'expire', 'expired')
        ended_now = ended_now + 1
    end
end
return woke(ended_now)
