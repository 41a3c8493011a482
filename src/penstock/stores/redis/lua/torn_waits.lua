-- keys: edge_of edge_state hold nudge dead
-- with: lease
-- ARGV: now, how many edges to look at, then ids. Returns how many are held without a hold, how
-- many have holds and are not held, how many missed the end of a message they wait for, how many
-- have holds, and how many ids it looked at: the one that reaches the number of edges is the last.
local unheld, orphans, missed, holds, looked = 0, 0, 0, 0, 0
local room = tonumber(ARGV[2])

local function is_held(id)
    local text = call('HGET', ticket, id)
    local t = text and ticket_of(id, text)
    return t and has(t.flags, HELD) and is_scheduled(t) and call('ZSCORE', held_until, id)
end

local function has_missed(id, each)
    local prefix = id .. hex(tonumber(each.number))
    for _, field in ipairs(call('ZRANGEBYLEX', edge_of, '[' .. prefix, '(' .. prefix .. 'g')) do
        room = room - 1
        local awaited = sub(field, 29)
        local over = ended(awaited) or call('HEXISTS', message, awaited) == 0 or
            each.on_dead == 'settle' and call('HEXISTS', dead, awaited) == 1
        if over and not call('HGET', edge_state, field)
            and not call('ZSCORE', nudge, id .. awaited) then return true end
    end
    return false
end

for place = 3, #ARGV do
    if room <= 0 then break end
    looked = looked + 1
    local id = ARGV[place]
    local text = call('HGET', hold, id)
    local waits = is_held(id)
    if text and not waits then orphans = orphans + 1 end
    if waits and not text then unheld = unheld + 1 end
    if text then
        holds = holds + 1
        for _, each in ipairs(cjson.decode(text)) do
            local nudged = call('ZSCORE', nudge, id .. NO_MESSAGE)
            if each.kind == 'after' and not nudged and has_missed(id, each) then
                missed = missed + 1
            end
        end
    end
end
return {unheld, orphans, missed, holds, looked}
