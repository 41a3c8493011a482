-- keys: scope scope_name queue queue_name schedule schedule_name
-- with: lease documents audit
-- ARGV: now, the directory version, and a JSON object of lists:
--   expected: field and version of documents;
--   scopes: name field, text, name of the dead-letter queue, its text without the scope number;
--   queues: name field of the scope, name, text without the scope number;
--   changed: queue, its old and new text;
--   deleted: queue, its old and new text, name field;
--   schedules: name field of the scope, queue, name, paused, next tick, plan;
--   unscheduled: schedule, name field;
--   documents: field, expiry, body; undocumented: fields.
local change = cjson.decode(ARGV[3])
if (call('HGET', fact, 'directory') or '0') ~= ARGV[2] then return 'moved' end
for _, each in ipairs(change.expected) do
    if version_of(each[1]) ~= each[2] then return 'moved' end
end
for _, each in ipairs(change.changed) do
    if call('HGET', queue, each[1]) ~= each[2] then return 'moved' end
end

local function holds(id)
    for _, set in ipairs({ready, scheduled, dead_line}) do
        if #of_queue(set, id, 1) > 0 then return true end
    end
    for _, text in ipairs(call('HVALS', lease)) do
        if match(text, '^%d+ %a %d+ %d+ (%x+)') == id then return true end
    end
    return false
end

for _, each in ipairs(change.deleted) do
    if call('HGET', queue, each[1]) ~= each[2] then return 'moved' end
    if holds(each[1]) then return 'holds ' .. each[1] end
end

local function put_queue(scope_id, name, rest)
    local field = format('%08x', call('HINCRBY', fact, 'queue', 1))
    call('HSET', queue, field, '{"scope":' .. scope_id .. rest)
    call('HSET', queue_name, scope_id .. ':' .. name, field)
end

for _, each in ipairs(change.scopes) do
    local id = whole(call('HINCRBY', fact, 'scope', 1))
    call('HSET', scope, id, each[2])
    call('HSET', scope_name, each[1], id)
    put_queue(id, each[3], each[4])
end
for _, each in ipairs(change.queues) do
    put_queue(call('HGET', scope_name, each[1]), each[2], each[3])
end
for _, each in ipairs(change.changed) do call('HSET', queue, each[1], each[3]) end
for _, each in ipairs(change.deleted) do
    call('HSET', queue, each[1], each[3])
    if call('HGET', queue_name, each[4]) == each[1] then call('HDEL', queue_name, each[4]) end
end
for _, each in ipairs(change.schedules) do
    local field = call('HGET', queue_name, call('HGET', scope_name, each[1]) .. ':' .. each[2])
    local queue_id = whole(tonumber(field, 16))
    local name = queue_id .. ':' .. each[3]
    local id = call('HGET', schedule_name, name)
    local last = id and match(call('HGET', schedule, id), '^%d %d+ (%S+)') or NONE
    if not id then
        id = whole(call('HINCRBY', fact, 'schedule', 1))
        call('HSET', schedule_name, name, id)
    end
    call('HSET', schedule, id, table.concat({each[4], each[5], last, queue_id, each[6]}, ' '))
end
for _, each in ipairs(change.unscheduled) do
    call('HDEL', schedule, each[1])
    call('HDEL', schedule_name, each[2])
end
for _, each in ipairs(change.documents) do save_document(each[1], NONE, each[2], each[3]) end
for _, field in ipairs(change.undocumented) do delete_document(field) end
call('HINCRBY', fact, 'directory', 1)
acted()
return 'done'
