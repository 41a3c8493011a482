-- keys: signal signal_line
-- with: lease documents
-- ARGV: now, id, name, key with a marker letter, body, limit, event and
-- how long that is kept. A signal is "consumed at name_length
-- key_length name key body".
local id, name_, key, body = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local state = state_of(id)
if not state or FINAL[state] then return {state and 'INVALID_STATE' or 'NOT_FOUND', '', state or ''} end
local waiting_signals = 0
for _, member in ipairs(call('ZRANGEBYLEX', signal_line, '[' .. id, '(' .. id .. 'g')) do
    local text = call('HGET', signal, member)
    local consumed, names, keys, start = match(text, '^(%d) %d+ (%d+) (%S+) ()')
    if consumed == '0' then waiting_signals = waiting_signals + 1 end
    local keyed = keys ~= NONE and sub(text, start + names, start + names + keys - 1)
    if key ~= '' and keyed == sub(key, 2) and sub(text, start, start + names - 1) == name_ then
        local same = sub(text, start + names + keys) == body
        return {same and 'duplicate' or 'IDEMPOTENCY_CONFLICT', sub(member, 15), state}
    end
end
if waiting_signals >= tonumber(ARGV[6]) then return {'SIGNALS_FULL', '', state} end
local number = hex(call('HINCRBY', fact, 'signal', 1))
local lengths = key == '' and NONE or #key - 1
call('HSET', signal, id .. number,
    table.concat({0, now_text, #name_, lengths, ''}, ' ') .. name_ .. sub(key, 2) .. body)
call('ZADD', signal_line, 0, id .. number)
if ARGV[7] ~= '' then
    local name_of = 'live_event ' .. string.format('%020d', now) .. '-signal-' .. tonumber(number, 16)
    save_document(name_of, NONE, whole(now + ARGV[8]), ARGV[7])
end
put_nudge(id)
return {'done', number, state}
