-- Results are kept until the messages that wait for them have ended.
-- keys: edge
-- with: history

local any_edges = call('ZRANGE', edge, 0, 0)[1] ~= nil

local function is_awaited(id)
    if not any_edges then return false end
    for _, member in ipairs(call('ZRANGEBYLEX', edge, '[' .. id, '(' .. id .. 'g')) do
        if not ended(sub(member, 15, 28)) then return true end
    end
    return false
end
