-- History, append-only, one row per change.
-- keys: history story unsuccessful

-- "verb state at due attempts deliveries reason_length error_length id queue reason error lease".
-- An attempts field of + is the lease's value plus one, - is the lease's value.
local ROW = '^(%a+) (%a+) %d+ %S+ %S+ %S+ (%S+) (%S+) %x+ %S+ ()'

local function length_of(text) return text and #text or NONE end

local function append_story(id, position)
    local before = call('HGET', story, id)
    call('HSET', story, id, before and (before .. ' ' .. position) or position)
end

local function record(t, verb, state, also)
    local position = whole(call('HINCRBY', fact, 'position', 1))
    also = also or {}
    local row = table.concat({
        verb, state, now_text, also.due or NONE, t.attempts, t.deliveries,
        length_of(also.reason), length_of(also.error), t.id, t.queue, '',
    }, ' ') .. (also.reason or '') .. (also.error or '') .. (also.lease or '')
    if also.traceback then
        call('XADD', history, position .. '-0', 'r', row, 't', also.traceback)
    else
        call('XADD', history, position .. '-0', 'r', row)
    end
    append_story(t.id, position)
    -- Lists the few messages that ended without being completed.
    if FINAL[state] and state ~= 'completed' then call('ZADD', unsuccessful, 0, t.id) end
end

-- Returns the verb, state and fence of a row.
local function parse_row(row)
    local verb, state, reasons, errors, rest = match(row, ROW)
    return verb, state, match(row, '^%d+', rest + (tonumber(reasons) or 0) + (tonumber(errors) or 0))
end

-- Returns the rows of a message, oldest first, as position, text and traceback.
local function rows_of(id)
    local rows = {}
    for position in string.gmatch(call('HGET', story, id) or '', '%d+') do
        local found = call('XRANGE', history, position, position)
        if found[1] then
            rows[#rows + 1] = {position, found[1][2][2], found[1][2][4] or ''}
        end
    end
    return rows
end

-- Returns the final state and its time, if any: that row is the last.
local function ended(id)
    local last = match(call('HGET', story, id) or '', '%d+$')
    local found = last and call('XRANGE', history, last, last)[1]
    local state, at
    if found then state, at = match(found[2][2], '^%a+ (%a+) (%d+)') end
    if FINAL[state] then return state, at end
end
