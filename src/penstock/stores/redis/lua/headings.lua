-- with: message
-- ARGV: now, ids. Returns each message without its body, or nothing for one that does not exist.
-- One call reads a few megabytes at most: it may return fewer than it was asked for.
local room, found = 4000000, {}
for place = 2, #ARGV do
    local value = call('HGET', message, ARGV[place])
    found[#found + 1] = value and sub(value, 1, heading(value).body - 1) or ''
    room = room - (value and #value or 0)
    if room < 0 then return found end
end
return found
