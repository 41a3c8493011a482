-- with: lease
-- ARGV: now, id, queue, how many of the queue to read. Returns how many are before the message,
-- and how many of the queue are claimed.
local id, queue = ARGV[2], ARGV[3]
local members = of_queue(ready, queue, tonumber(ARGV[4]))
local ahead = #members
for place, member in ipairs(members) do
    if sub(member, 23, 36) == id then ahead = place - 1 end
end
local claimed = 0
for _, text in ipairs(call('HVALS', lease)) do
    if match(text, '^%d+ %a %d+ %d+ (%x+)') == queue then claimed = claimed + 1 end
end
return {ahead, claimed}
