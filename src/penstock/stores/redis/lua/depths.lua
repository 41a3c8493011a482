-- with: lease
-- ARGV: now, the queues.
local leased = {}
for _, text in ipairs(call('HVALS', lease)) do
    local queue_id = match(text, '^%d+ %a %d+ %d+ (%x+)')
    leased[queue_id] = (leased[queue_id] or 0) + 1
end
local counts = {}
for place = 2, #ARGV do
    local from, to = '[' .. ARGV[place], '(' .. ARGV[place] .. 'g'
    counts[#counts + 1] = {
        call('ZLEXCOUNT', ready, from, to), call('ZLEXCOUNT', scheduled, from, to),
        leased[ARGV[place]] or 0, call('ZLEXCOUNT', dead_line, from, to),
    }
end
return counts
