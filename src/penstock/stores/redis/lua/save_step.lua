-- with: publishing waiting steps lease
-- keys: signal
-- ARGV: now, id, fence, the 7 values of the step, the signal it consumes, then the entry it
-- publishes, if any. Returns the answer and the step as stored.
local id, fence, s = ARGV[2], ARGV[3], step_at(4)
local t = held(id, fence)
if not t then return woke({explain(id, fence, '')}) end
if has(t.flags, FROM_DEAD) then return woke({'invalid claimed'}) end
local field = step_field(id, s.name, s.key)
local stored = call('HGET', step, field)
if stored then
    local _, position, done = match(stored, STEP)
    if done == '1' then return woke({'already completed', stored}) end
    s.position = position
end
if ARGV[12] then
    local groups = groups_from(12)
    local refused = refusals(groups)
    if refused then return woke({'refused', 0, refused[1]}) end
    s.body = whole(tonumber(expand(publish(groups))[1], 16))
end
-- First: without the flag, later runs would not read the step.
if not has(t.flags, STEPS) then
    flag_steps(t)
    keep_lease(t)
end
local text = put_step(id, fence, s)
if ARGV[11] ~= '' then
    local sent = call('HGET', signal, id .. ARGV[11])
    if sent then call('HSET', signal, id .. ARGV[11], '1' .. sub(sent, 2)) end
end
return woke({'done', text})
