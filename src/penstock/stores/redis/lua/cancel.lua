-- with: lease audit
-- ARGV: now, force, then the ids.
local force = ARGV[2] == '1'

local function cancel_claimed(t)
    if not force then
        t.flags = bit.bor(t.flags, CANCEL_REQUESTED)
        keep_lease(t)
        return 'requested'
    end
    record(t, 'cancel', 'cancelled', {reason = 'forced', lease = t.text})
    drop_lease(t)
    call('HDEL', dead, t.id)
    over(t, 'cancelled', 'forced')
    return 'done'
end

local function cancel_one(id)
    local text = call('HGET', lease, id)
    if text then return cancel_claimed(lease_of(id, text)) end
    local state = state_of(id)
    if not state then return 'missing' end
    if state ~= 'ready' and state ~= 'scheduled' then return 'invalid ' .. state end
    local t = waiting(id)
    if state == 'scheduled' then take_scheduled(t) else take_ready(t) end
    leave_line(t)
    finish(t, 'cancel', 'cancelled', 'requested')
    return 'done'
end

local answers = {}
for place = 3, #ARGV do answers[#answers + 1] = cancel_one(ARGV[place]) end
acted_if(answers)
return woke(answers)
