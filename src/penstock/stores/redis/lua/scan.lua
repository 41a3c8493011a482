-- keys: correlation
-- with: lease ids dead
-- ARGV: now, source, key, id, limit, correlation digest, queue, then ids in descending order for
-- the source of that name. Key and id are those of the last message read, or empty. Returns for
-- each message: id, queue, type, created, size, key; and the key and id to go on from, or nothing
-- at the end. One call reads a few megabytes at most.
local source, key, last, limit = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local queue, room, found = ARGV[7], 4000000, {}

-- Members of a sorted set that begin with a prefix, then a key, then an id.
local function members_of(set, prefix, descending, first, stop)
    local bound = prefix .. key .. last
    local members
    if descending then
        members = call('ZREVRANGEBYLEX', set, last == '' and '(' .. prefix .. 'g' or '(' .. bound,
            '[' .. prefix, 'LIMIT', 0, limit)
    else
        members = call('ZRANGEBYLEX', set, last == '' and '[' .. prefix or '(' .. bound .. '\255',
            '(' .. prefix .. 'g', 'LIMIT', 0, limit)
    end
    local entries = {}
    for place, member in ipairs(members) do
        entries[place] = {sub(member, first, stop), first > 9 and sub(member, 9, first - 1) or ''}
    end
    return entries
end

local function claimed()
    local ids, entries = call('HKEYS', lease), {}
    table.sort(ids, function(a, b) return a > b end)
    for _, id in ipairs(ids) do
        if #entries < limit and (last == '' or id < last) then entries[#entries + 1] = {id, ''} end
    end
    return entries
end

local function messages()
    local bound = last == '' and last_id + 1 or math.min(tonumber(last, 16), last_id + 1)
    local entries = {}
    for place, id in ipairs((ids_from(bound, -1, limit))) do entries[place] = {id, ''} end
    return entries
end

local function named()
    local entries = {}
    for place = 8, #ARGV do
        if #entries < limit and (last == '' or ARGV[place] < last) then
            entries[#entries + 1] = {ARGV[place], ''}
        end
    end
    return entries
end

local sources = {
    messages = messages,
    ids = named,
    claimed = claimed,
    unsuccessful = function() return members_of(unsuccessful, '', true, 1, 14) end,
    correlated = function() return members_of(correlation, ARGV[6], true, -14, -1) end,
    ready = function() return members_of(ready, queue, false, 23, 36) end,
    scheduled = function() return members_of(scheduled, queue, true, 9, 22) end,
    dead = function() return members_of(dead_line, queue, true, 23, 36) end,
}

local entries = sources[source]()
for place, entry in ipairs(entries) do
    local id, value = entry[1], call('HGET', message, entry[1])
    if value then
        local h = heading(value)
        for _, word in ipairs({id, h.queue, h.type, h.created, #value - h.body + 1, entry[2]}) do
            found[#found + 1] = word
        end
        room = room - #value
    end
    if room < 0 and place < #entries or place == limit then return {found, entry[2], id} end
end
return {found, '', ''}
