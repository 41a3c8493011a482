-- with: publishing waiting steps lease
-- ARGV: now, id, fence, flags as read, attempts, deliveries, reason, its holds and those of its
-- children as JSON, whether the last step records the children, number of steps, then 7 values of each step, then the children.
local id, fence, reason = ARGV[2], ARGV[3], ARGV[7]
local many = tonumber(ARGV[10])
local t = held(id, fence)
if not t or t.flags ~= tonumber(ARGV[4]) then return woke({explain(id, fence, 'wait')}) end
if has(t.flags, FROM_DEAD) then return woke({'invalid claimed'}) end
local groups = groups_from(11 + 7 * many)
local refused = refusals(groups)
if refused then
    for place, code in ipairs(refused) do
        if code ~= '' then return woke({'refused', place - 1, code}) end
    end
end


local function leads_to_itself()
    local place = 0
    for _, group in ipairs(groups) do
        for _ = group.first, group.last do
            if seen_before(group) == 'd ' .. id then return place end
            place = place + 1
        end
    end
end

local own = leads_to_itself()
if own then return woke({'refused', own, 'WAITS_FOR_ITSELF'}) end

local given = cjson.decode(ARGV[8])
local holds = given.own
date_holds(holds, fence)
local first = next_due(holds)
local children = expand(publish(groups))

local function children_text()
    local numbers = {}
    for place, child in ipairs(children) do numbers[place] = whole(tonumber(child, 16)) end
    return '[' .. table.concat(numbers, ',') .. ']'
end

for place = 1, many do
    local s = step_at(4 + 7 * place)
    if place == many and ARGV[9] == '1' then s.body = children_text() end
    local limit = holds[1] and holds[1].due_at or NEVER
    if s.done == '0' and s.due == NONE and limit ~= NEVER then s.due = limit end
    put_step(id, fence, s)
    flag_steps(t)
end
hold_published(given.children, children)
put_holds(id, holds, children)
put_nudge(id)
local lease_then = t.text
t.attempts, t.deliveries = tonumber(ARGV[5]), tonumber(ARGV[6])
t.flags = bit.bor(bit.band(t.flags, LASTING), HELD)
record(t, 'wait', 'scheduled', {
    reason = reason, due = first ~= NEVER and first or nil, lease = lease_then,
})
put_scheduled(t, first)
drop_lease(t)
return woke({'done', first})
