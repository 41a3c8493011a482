-- with: lease ids
-- ARGV: now, first message and row (exclusive), last of both, limit of each. Returns how far it
-- read and the counts per place.
local after, last_row, limit = tonumber(ARGV[2]), ARGV[5], tonumber(ARGV[6])
last_id = math.min(last_id, tonumber(ARGV[4]))
-- Fewer messages per call if their bodies are large.
local room = 1000000
local tallies = {}

local function count(queue_id, place, id)
    local key = queue_id .. ' ' .. place
    local tally = tallies[key] or {key, 0, 0}
    tallies[key] = tally
    local number = tonumber(id, 16)
    tally[2] = tally[2] + 1
    tally[3] = tally[3] + ((number % 1000003) * (number % 1000033)) % 1000000007
end

local function count_ready(t)
    if call('ZSCORE', ready, ready_member(t)) then count(t.queue, 'ready', t.id) end
end

local function count_message(id, value, remembered)
    local head = heading(value)
    count(head.queue, 'message', id)
    if not remembered then count_ready(plain_ticket(id, head)) end
end

local function count_ticket(id, text)
    local t = ticket_of(id, text)
    count_ready(t)
    if is_scheduled(t) then count(t.queue, 'scheduled', id) end
end

local function count_dead(id)
    local t = dead_of(id)
    if call('ZSCORE', dead_line, dead_member(t, t.dead_at)) then count(t.queue, 'dead', id) end
end

-- Counts a message with all its places: between two scripts it may move.
local function look(id, value, remembered, leased, died)
    if value then count_message(id, value, remembered) end
    if remembered then count_ticket(id, remembered) end
    if leased then count(lease_of(id, leased).queue, 'lease', id) end
    if died then count_dead(id) end
end

local function look_from(ids, numbers)
    if #ids == 0 then return tonumber(ARGV[4]) end
    local tickets = call('HMGET', ticket, unpack(ids))
    local leases = call('HMGET', lease, unpack(ids))
    local dead_tickets = call('HMGET', dead, unpack(ids))
    for place, id in ipairs(ids) do
        local value = call('HGET', message, id)
        look(id, value, tickets[place], leases[place], dead_tickets[place])
        room = room - (value and #value or 0)
        if room < 0 then return numbers[place] end
    end
    return numbers[#numbers]
end

local function count_row(row)
    local state, id, queue_id = match(row, '^%a+ (%a+) %d+ %S+ %S+ %S+ %S+ %S+ (%x+) (%S+)')
    if not FINAL[state] then return end
    if queue_id == NONE then
        queue_id = match(row, '^%a+ %a+ %d+ %S+ %S+ %S+ %S+ %S+ %x+ %- %d+ %a %d+ %d+ (%x+)')
    end
    count(queue_id, 'ended', id)
end

local reached = look_from(ids_from(after, 1, limit))
local rows = call('XRANGE', history, '(' .. ARGV[3] .. '-0', last_row .. '-0', 'COUNT', limit)
for _, entry in ipairs(rows) do count_row(entry[2][2]) end
local row = #rows == limit and match(rows[limit][1], '^%d+') or last_row

local listed = {}
for _, tally in pairs(tallies) do listed[#listed + 1] = tally end
return {whole(reached), row, listed}
