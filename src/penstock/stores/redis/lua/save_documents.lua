-- keys: document document_line document_until
-- with: audit
-- ARGV: now, then for each: kind and name, the expected version or '-', expiry, body.
local function version_of(field)
    local version, expires = match(call('HGET', document, field) or '', '^(%d+) (%d+)')
    return version and tonumber(expires) > now and version or '0'
end

local function save(field, expected, expires, body)
    local version = version_of(field)
    if expected ~= NONE and expected ~= version then return 0 end
    call('HSET', document, field, whole(version + 1) .. ' ' .. expires .. ' ' .. body)
    call('ZADD', document_line, 0, field)
    if expires == NEVER then
        call('ZREM', document_until, field)
    else
        call('ZADD', document_until, expires, field)
    end
    return 1
end

local answers = {}
for place = 2, #ARGV, 4 do answers[#answers + 1] = save(unpack(ARGV, place, place + 3)) end
acted_if(answers)
return answers
