-- with: dead audit
-- ARGV: now, queue, limit, places.
local queue, limit, taken = ARGV[2], tonumber(ARGV[3]), {}

local function take(place, member)
    if place == 'dead' then return take_dead(sub(member, 23, 36)) end
    local t = waiting(sub(member, place == 'ready' and 23 or 9, place == 'ready' and 36 or 22))
    if place == 'ready' then take_ready(t) else take_scheduled(t) end
    leave_line(t)
    return t
end

local sets = {ready = ready, scheduled = scheduled, dead = dead_line}
for argument = 4, #ARGV do
    for _, member in ipairs(of_queue(sets[ARGV[argument]], queue, limit - #taken)) do
        taken[#taken + 1] = take(ARGV[argument], member)
    end
end
-- After taking all: ending one may free a key and so move another ticket.
for _, t in ipairs(taken) do finish(t, 'cancel', 'cancelled', 'purged') end
if #taken > 0 then acted() end
return woke(#taken)
