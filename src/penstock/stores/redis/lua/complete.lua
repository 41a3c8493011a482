-- keys: result result_until queue dedup_until
-- with: lease
-- ARGV: now, count, id and fence of each, then index and result of those that have one, then
-- 0 and how long keys are kept, and negative index and key of those that record keys.
-- A full server rejects a script at its first write unless that write frees memory, so begin
-- with a deletion: completing frees memory.
call('HDEL', fact, '')
local many = tonumber(ARGV[2])
local ids, fences, results, lengths = {}, {}, {}, {}
for place = 1, many do ids[place], fences[place] = ARGV[2 * place + 1], ARGV[2 * place + 2] end
local seen, window = {}, 0
for place = 2 * many + 3, #ARGV, 2 do
    local at = tonumber(ARGV[place])
    if at > 0 then
        results[at] = ARGV[place + 1]
    elseif at == 0 then
        window = tonumber(ARGV[place + 1])
    else
        seen[-at] = seen[-at] or {}
        table.insert(seen[-at], ARGV[place + 1])
    end
end

local texts = call('HMGET', lease, unpack(ids))
local answers, done, plain, special = {}, {}, {}, {}
for place, id in ipairs(ids) do
    local text, start = texts[place], #fences[place] + 1
    if text and not done[id] and sub(text, 1, start) == fences[place] .. ' ' then
        done[id] = true
        local list = sub(text, start + 1, start + 1) == 'p' and plain or special
        list[#list + 1] = place
        answers[place] = 'done'
    end
end

local function keep_for(queue_id)
    local kept = lengths[queue_id]
    if not kept then
        local stored = call('HGET', queue, queue_id)
        kept = stored and cjson.decode(stored).settings.keep_results or 86400
        lengths[queue_id] = kept
    end
    return kept
end

local function keep_given(place, text)
    if not results[place] then return end
    local expires = whole(now + math.floor(keep_for(lease_of(ids[place], text).queue) * 1000000))
    call('HSET', result, ids[place], results[place])
    call('ZADD', result_until, expires, ids[place])
end

local function record_seen(place, text)
    if not seen[place] then return end
    local expires = whole(now + window)
    local prefix = lease_of(ids[place], text).queue .. ':'
    for _, key in ipairs(seen[place]) do
        call('HSET', dedup, prefix .. key, ids[place] .. ' 00 ' .. expires)
        call('ZADD', dedup_until, expires, prefix .. key)
    end
end

if #plain > 0 then
    local position = call('HINCRBY', fact, 'position', #plain) - #plain
    local before = 'complete completed ' .. now_text .. ' - + - - - '
    local stories, removed = {}, {}
    for number, place in ipairs(plain) do
        local id, at = ids[place], whole(position + number)
        call('XADD', history, at .. '-0', 'r', before .. id .. ' - ' .. texts[place])
        stories[2 * number - 1], stories[2 * number] = id, at
        removed[number] = id
        keep_given(place, texts[place])
        record_seen(place, texts[place])
    end
    in_parts(stories, 'HSET', story)
    in_parts(removed, 'HDEL', lease)
    in_parts(removed, 'ZREM', lease_until)
end

for _, place in ipairs(special) do
    local t = lease_of(ids[place], texts[place])
    t.attempts = t.attempts + 1
    record(t, 'complete', 'completed', {lease = t.text})
    keep_given(place, texts[place])
    record_seen(place, texts[place])
    drop_lease(t)
    if has(t.flags, FROM_DEAD) then call('HDEL', dead, t.id) end
    over(t, 'completed')
end
if #plain + #special == many then return woke('done') end
for place, id in ipairs(ids) do
    answers[place] = answers[place] or explain(id, fences[place], 'complete')
end
return woke(answers)
