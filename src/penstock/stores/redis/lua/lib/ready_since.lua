-- Finds since when a ready message waits for its claim.
-- keys: signal signal_line edge_of edge_state
-- with: ticket history

local WAIT = '^wait scheduled (%d+) (%S+) %S+ %S+ (%S+) %S+ %x+ %S+ ()'
-- Edges read per script, which keeps it short.
local edges_left = 1000

local function last_wait(id)
    local positions = {}
    for position in string.gmatch(call('HGET', story, id) or '', '%d+') do
        positions[#positions + 1] = position
    end
    for place = #positions, 1, -1 do
        local found = call('XRANGE', history, positions[place], positions[place])[1]
        local row = found and found[2][2] or ''
        local at, due_at, length, start = match(row, WAIT)
        if at then
            local _, _, fence = parse_row(row)
            local reason = sub(row, start, start + (tonumber(length) or 0) - 1)
            return {at = tonumber(at), due_at = tonumber(due_at), reason = reason, fence = fence}
        end
    end
end

-- Returns when the first signal arrived that the wait had not received before.
local function signalled_at(id, wait)
    local wanted = match(wait.reason, '^signal:(.*)')
    if not wanted then return 0 end
    for _, member in ipairs(call('ZRANGEBYLEX', signal_line, '[' .. id, '(' .. id .. 'g')) do
        local text = call('HGET', signal, member)
        local consumed, at, length, start = match(text, '^(%d) (%d+) (%d+) %S+ ()')
        at = tonumber(at)
        if (consumed == '0' or at >= wait.at) and sub(text, start, start + length - 1) == wanted then
            return at
        end
    end
    return 0
end

-- Returns when the last of the messages ended that it waited for.
local function awaited_until(id, number)
    local prefix, last = id .. hex(number), 0
    local fields = call('ZREVRANGEBYLEX', edge_of, '(' .. prefix .. 'g', '[' .. prefix,
        'LIMIT', 0, edges_left)
    edges_left = edges_left - #fields
    for _, field in ipairs(fields) do
        if call('HEXISTS', edge_state, field) == 1 then
            local _, at = ended(sub(field, 29))
            last = math.max(last, tonumber(at) or 0)
        end
    end
    return last
end

-- Counts from the resume if it waited.
local function ready_since(id)
    local found = heading(call('HGET', message, id))
    local since = tonumber(found.run_at) or tonumber(found.created)
    -- A message without a ticket is as it was published.
    if call('HEXISTS', ticket, id) == 0 then return since end
    local wait = last_wait(id)
    since = math.max(since, awaited_until(id, wait and tonumber(wait.fence) or 0))
    if not wait then return since end
    local limit = wait.due_at and wait.due_at <= now and wait.due_at or 0
    return math.max(since, wait.at, limit, signalled_at(id, wait))
end
