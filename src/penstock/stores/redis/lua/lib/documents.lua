-- Saves and deletes documents by field: kind and name.
-- keys: document document_line document_until

local function version_of(field)
    local version, expires = match(call('HGET', document, field) or '', '^(%d+) (%d+)')
    return version and tonumber(expires) > now and version or '0'
end

-- Returns 0 if the stored version is not the expected one, which may be NONE.
local function save_document(field, expected, expires, body)
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

local function delete_document(field)
    call('ZREM', document_line, field)
    call('ZREM', document_until, field)
    return call('HDEL', document, field)
end
