-- with: lease audit
-- ARGV: now, then the ids.
local function redrive_one(id)
    local t = take_dead(id)
    if not t then
        local state = state_of(id)
        return state and 'invalid ' .. state or 'missing'
    end
    local expires = heading(call('HGET', message, id)).expires
    t.attempts, t.deliveries, t.expires = 0, 0, expires == NONE and NEVER or expires
    if has(t.flags, KEYED) then
        record(t, 'redrive', 'scheduled')
        get_in_line(t, hex(call('HINCRBY', fact, 'message', 1)))
    else
        record(t, 'redrive', 'ready')
        put_ready(t)
    end
    return 'done'
end

local answers = {}
for place = 2, #ARGV do answers[#answers + 1] = redrive_one(ARGV[place]) end
acted_if(answers)
return woke(answers)
