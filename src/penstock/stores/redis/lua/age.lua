-- with: ticket
-- ARGV: now, queue, then id, rank and rank above of each ticket. Moves those still at their rank.
local queue, moved = ARGV[2], 0
for place = 3, #ARGV, 3 do
    local t = waiting(ARGV[place])
    if t and t.queue == queue and t.rank == ARGV[place + 1] and take_ready(t) then
        t.rank = ARGV[place + 2]
        put_ready(t)
        moved = moved + 1
    end
end
return moved
