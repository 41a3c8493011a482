-- keys: schedule
-- with: publishing
-- ARGV: now, then of each schedule: its id, its tick as read, the next tick, the number of entry
-- groups, and these. Returns 1 for each that fired, and 0 for each that another process fired.
local fired, place = {}, 2
while ARGV[place] do
    local id, seen_at, following = ARGV[place], ARGV[place + 1], ARGV[place + 2]
    local groups, count = {}, tonumber(ARGV[place + 3])
    place = place + 4
    for number = 1, count do groups[number], place = read_group(place) end
    local text = call('HGET', schedule, id)
    local paused, next_at, rest = match(text or '', '^(%d) (%d+) %S+ ()')
    local due = paused == '0' and next_at == seen_at
    if due then
        publish(groups)
        call('HSET', schedule, id, '0 ' .. following .. ' ' .. seen_at .. ' ' .. sub(text, rest))
    end
    fired[#fired + 1] = due and 1 or 0
end
return woke(fired)
