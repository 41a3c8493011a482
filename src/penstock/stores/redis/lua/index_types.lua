-- with: ticket
-- ARGV: now. Builds the type index, so that claims by type skip no tickets.
call('HSET', fact, 'typed', '1')
local start = 0
repeat
    local members, entries = call('ZRANGE', ready, start, start + 999), {}
    for place, member in ipairs(members) do
        entries[2 * place - 1] = 0
        entries[2 * place] = typed_member(sub(member, 1, 8), sub(member, 9, 22),
            sub(member, 23, 36), sub(member, 37))
    end
    in_parts(entries, 'ZADD', typed)
    start = start + 1000
until #members < 1000
return 1
