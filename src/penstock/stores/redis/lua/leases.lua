-- with: lease
-- ARGV: now, then id and fence of each; or 'expired' and a limit.
-- Returns for each: id, lease, until, message head, why it was dead, history rows.
local function told_of(id, fence)
    local text = call('HGET', lease, id)
    if not text or (fence and match(text, '^%d+') ~= fence) then return '' end
    local value = call('HGET', message, id)
    local dead_ticket = match(text, '^%d+ x') and dead_of(id)
    local rows = {}
    for _, row in ipairs(match(text, '^%d+ x') and rows_of(id) or {}) do rows[#rows + 1] = row[2] end
    return {
        id, text, call('ZSCORE', lease_until, id), sub(value, 1, heading(value).body - 1),
        dead_ticket and dead_ticket.reason or '', rows,
    }
end

local found = {}
if ARGV[2] == 'expired' then
    local ids = call('ZRANGEBYSCORE', lease_until, '-inf', '(' .. now_text, 'LIMIT', 0, ARGV[3])
    for place, id in ipairs(ids) do found[place] = told_of(id) end
else
    for place = 2, #ARGV, 2 do found[#found + 1] = told_of(ARGV[place], ARGV[place + 1]) end
end
return {now_text, found}
