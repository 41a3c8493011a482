-- keys: name result result_until correlation gap step step_line signal signal_line edge_of edge_state
-- with: lease
-- ARGV: now, counters, then the number of messages with 13 values each, then rows of history with
-- 3 values each, then what messages wait for with 4 values each, then gaps with 2 each. Skips
-- messages that are stored.
for place, number in ipairs({'message', 'fence', 'pruned'}) do
    local stored = tonumber(call('HGET', fact, number) or '0')
    if tonumber(ARGV[1 + place]) > stored then call('HSET', fact, number, ARGV[1 + place]) end
end

local function put_plain(t)
    call('ZADD', ready, 0, ready_member(t))
    index_type(t, 'ZADD', 0)
    woken[t.queue] = true
end

local function put_ticket(life)
    local t = ticket_of(life.id, life.ticket)
    if life.place == 'ready' then
        if life.plain == '1' then put_plain(t) else put_ready(t) end
    elseif life.place == 'scheduled' then
        put_scheduled(t, life.due ~= '' and life.due or nil)
        if t.position ~= NONE then call('ZADD', line, 0, in_line(t)) end
    else
        local reason = life.reason ~= '' and sub(life.reason, 2) or nil
        local failure = life.error ~= '' and sub(life.error, 2) or nil
        put_dead(t, tonumber(life.due), reason, failure)
    end
    if life.head == '1' then call('HSET', head, t.key, life.id) end
end

local FIELDS = {
    'id', 'value', 'name', 'correlation', 'place', 'ticket', 'plain', 'due', 'head', 'reason',
    'error', 'until', 'result',
}

local function put_life(life)
    call('HSET', message, life.id, life.value)
    if life.name ~= '' then call('HSET', name, life.name, life.id) end
    if life.correlation ~= '' then call('ZADD', correlation, 0, life.correlation .. life.id) end
    if life.place ~= '' then put_ticket(life) end
    if life['until'] ~= '' then
        call('HSET', result, life.id, life.result)
        call('ZADD', result_until, life['until'], life.id)
    end
end

local count, place, fresh, written = tonumber(ARGV[5]), 6, {}, 0
for _ = 1, count do
    local life = {}
    for field, key in ipairs(FIELDS) do life[key] = ARGV[place + field - 1] end
    if call('HEXISTS', message, life.id) == 0 then
        put_life(life)
        fresh[life.id] = true
        written = written + 1
    end
    place = place + #FIELDS
end

local rows = tonumber(ARGV[place])
place = place + 1
for _ = 1, rows do
    local id, row, traceback = ARGV[place], ARGV[place + 1], ARGV[place + 2]
    if fresh[id] then
        local position = whole(call('HINCRBY', fact, 'position', 1))
        if traceback ~= '' then
            call('XADD', history, position .. '-0', 'r', row, 't', traceback)
        else
            call('XADD', history, position .. '-0', 'r', row)
        end
        append_story(id, position)
        local state = match(row, '^%a+ (%a+)')
        if FINAL[state] and state ~= 'completed' then call('ZADD', unsuccessful, 0, id) end
    end
    place = place + 3
end

local PUT = {}
-- Nudges are not copied. A look finds what has ended meanwhile.
function PUT.hold(id, _, text)
    call('HSET', hold, id, text)
    put_nudge(id)
end

function PUT.step(id, field, text)
    call('HSET', step, id .. sub(field, 9), text)
    call('ZADD', step_line, 0, id .. field)
end

function PUT.signal(id, number, text)
    call('HSET', signal, id .. number, text)
    call('ZADD', signal_line, 0, id .. number)
    local last = tonumber(number, 16)
    if last > tonumber(call('HGET', fact, 'signal') or '0') then
        call('HSET', fact, 'signal', whole(last))
    end
end

function PUT.edge(id, field, state)
    call('ZADD', edge_of, 0, id .. field)
    call('ZADD', edge, 0, sub(field, 15) .. id .. sub(field, 1, 14))
    if state ~= '' then call('HSET', edge_state, id .. field, state) end
end

function PUT.result(id, expires, text)
    call('HSET', result, id, text)
    call('ZADD', result_until, expires, id)
end

local waits = tonumber(ARGV[place])
place = place + 1
for _ = 1, waits do
    local id, kind = ARGV[place], ARGV[place + 1]
    -- The result of a removed message may have been stored for another that waits for it.
    if fresh[id] or kind == 'result' and call('HEXISTS', result, id) == 0 then
        PUT[kind](id, ARGV[place + 2], ARGV[place + 3])
    end
    place = place + 4
end
while ARGV[place] do
    call('ZADD', gap, ARGV[place], ARGV[place] .. ' ' .. ARGV[place + 1])
    place = place + 2
end
return woke(written)
