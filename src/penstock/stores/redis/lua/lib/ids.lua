-- Ids that may have messages: long ranges were skipped or removed by retention.
-- keys: gap

local gaps = {}
for _, text in ipairs(call('ZRANGE', gap, 0, -1)) do
    local first, last = match(text, '^(%d+) (%d+)$')
    gaps[#gaps + 1] = {tonumber(first), tonumber(last)}
end
local last_id = tonumber(call('HGET', fact, 'message')) or 0

-- Returns up to `limit` ids, the smallest above, or with a step of -1 the largest below.
local function ids_from(number, step, count)
    local ids, numbers = {}, {}
    local place = step > 0 and 1 or #gaps
    while #ids < count do
        number = number + step
        while gaps[place] and (gaps[place][step > 0 and 2 or 1] - number) * step < 0 do
            place = place + step
        end
        local found = gaps[place]
        if found and found[1] <= number and number <= found[2] then
            number = found[step > 0 and 2 or 1]
        elseif number < 1 or number > last_id then
            break
        else
            ids[#ids + 1] = hex(number)
            numbers[#numbers + 1] = number
        end
    end
    return ids, numbers
end
