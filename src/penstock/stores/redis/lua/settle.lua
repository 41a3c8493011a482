-- with: lease
-- ARGV: now, then for each move: id, fence, flags as read, the time by which the lease must have
-- expired, verb, state, attempts, deliveries, reason, error, delay, whether its rank is its due
-- time, traceback.
call('HDEL', fact, '')  -- Lets later writes pass on a full server: see complete.

local function moved(t, move)
    t.attempts, t.deliveries = tonumber(move.attempts), tonumber(move.deliveries)
    t.flags = bit.band(t.flags, LASTING)
    local due_at = move.state == 'scheduled' and now + tonumber(move.delay)
    if move.ranked == '1' then
        t.rank = hex(math.floor((due_at or now) / 1000) + 9007199254740992)
    end
    return due_at
end

local function place_dead(t, move, dead_ticket)
    local flags = t.flags
    put_dead(t, dead_ticket and dead_ticket.dead_at or now, move.reason, move.error or (dead_ticket and dead_ticket.error))
    t.flags = flags
end

local function apply(t, move)
    local dead_ticket = has(t.flags, FROM_DEAD) and dead_of(t.id)
    local due_at = moved(t, move)
    if dead_ticket and move.state ~= 'dead' then call('HDEL', dead, t.id) end
    record(t, move.verb, move.state, {
        reason = move.reason, error = move.error, due = due_at and whole(due_at), lease = t.text,
        traceback = move.traceback,
    })
    if move.state == 'ready' then put_ready(t) end
    if move.state == 'scheduled' then put_scheduled(t, whole(due_at)) end
    if move.state == 'dead' then place_dead(t, move, dead_ticket) end
    drop_lease(t)
    -- A dead letter that stays dead is not announced twice.
    if dead_ticket and move.state == 'dead' then t.flags = bit.band(t.flags, bit.bnot(CALLBACK)) end
    if move.state == 'dead' or FINAL[move.state] then over(t, move.state, move.reason) end
    return 'done'
end

-- A present text begins with a marker letter.
local function given(text) return text ~= '' and sub(text, 2) or nil end

local answers = {}
for place = 2, #ARGV, 13 do
    local id, fence, seen, by = ARGV[place], ARGV[place + 1], ARGV[place + 2], ARGV[place + 3]
    local move = {
        verb = ARGV[place + 4], state = ARGV[place + 5], attempts = ARGV[place + 6],
        deliveries = ARGV[place + 7], reason = given(ARGV[place + 8]),
        error = given(ARGV[place + 9]), delay = ARGV[place + 10], ranked = ARGV[place + 11],
        traceback = given(ARGV[place + 12]),
    }
    local t = held(id, fence)
    local runs = t and by ~= '' and tonumber(call('ZSCORE', lease_until, id)) >= tonumber(by)
    if t and not runs and t.flags == tonumber(seen) then
        answers[#answers + 1] = apply(t, move)
    else
        answers[#answers + 1] = explain(id, fence, move.verb)
    end
end
return woke(answers)
