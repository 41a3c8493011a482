-- with: message ids history
-- ARGV: now, last message, last row, limit of each. Returns as `feed` does, without bodies, then
-- the messages of the rows that are not among them, and the earlier rows of those messages.
local after, limit = tonumber(ARGV[2]), tonumber(ARGV[4])
local seen = {}

-- Adds the id, the value up to its body, and the size of the body.
local function add_head(heads, id, value)
    local body = heading(value).body
    heads[#heads + 1] = id
    heads[#heads + 1] = sub(value, 1, body - 1)
    heads[#heads + 1] = whole(#value - body + 1)
    seen[id] = true
end

local messages, more = {}, true
for _ = 1, 20 do
    local ids, numbers = ids_from(after, 1, 500)
    more = #ids > 0
    if not more or #messages >= 3 * limit then break end
    for place, value in ipairs(call('HMGET', message, unpack(ids))) do
        after = numbers[place]
        if value then
            add_head(messages, ids[place], value)
            if #messages >= 3 * limit then break end
        end
    end
end

local rows, others, earlier, told_ids = {}, {}, {}, {}
for _, entry in ipairs(call('XRANGE', history, '(' .. ARGV[3] .. '-0', '+', 'COUNT', limit)) do
    local position, text = match(entry[1], '^%d+'), entry[2][2]
    rows[#rows + 1] = position
    rows[#rows + 1] = text
    local id = match(text, '^%a+ %a+ %d+ %S+ %S+ %S+ %S+ %S+ (%x+)')
    if not seen[id] then
        local value = call('HGET', message, id)
        if value then add_head(others, id, value) end
    end
    -- Most messages have a single row, which is this one.
    local positions = call('HGET', story, id)
    if positions and positions ~= position and not told_ids[id] then
        told_ids[id] = true
        for _, row in ipairs(rows_of(id)) do
            if not FINAL[match(row[2], '^%a+ (%a+)')] then
                earlier[#earlier + 1] = row[1]
                earlier[#earlier + 1] = row[2]
            end
        end
    end
end
local epoch = call('HGET', fact, 'epoch') or '0'
return {epoch, messages, whole(after), more and '1' or '', rows, others, earlier}
