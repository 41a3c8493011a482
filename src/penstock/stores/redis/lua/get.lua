-- with: lease
-- ARGV: now, whether to return tracebacks, ids. Returns for each: message, lease, until, mark,
-- ticket, whether it is scheduled, due, dead, rows, and the message that holds its key.
local full = ARGV[2] == '1'

-- Returns when a held message is looked at next, if ever.
local function looked_at(id, t)
    local moment = t and has(t.flags, HELD) and call('ZSCORE', held_until, id)
    return moment and moment ~= NEVER and moment
end

local function told_of(id)
    local value = call('HGET', message, id)
    if not value then return '' end
    local text, rows = call('HGET', ticket, id), {}
    for _, row in ipairs(rows_of(id)) do
        rows[#rows + 1] = row[1]
        rows[#rows + 1] = row[2]
        rows[#rows + 1] = full and row[3] or ''
    end
    local t = text and ticket_of(id, text)
    return {
        value, call('HGET', lease, id) or '', call('ZSCORE', lease_until, id) or '',
        call('HGET', mark, id) or '', text or '',
        t and is_scheduled(t) and '1' or '', call('ZSCORE', due, id) or looked_at(id, t) or '',
        call('HGET', dead, id) or '', rows,
        t and not has(t.flags, HELD) and call('HGET', head, t.key) or '',
    }
end

local found = {}
for place = 3, #ARGV do found[#found + 1] = told_of(ARGV[place]) end
return found
