-- with: publishing audit
-- ARGV: now, the dead message, then the entry group that replaces it.
local t = take_dead(ARGV[2])
if not t then return woke({}) end
finish(t, 'redrive', 'cancelled', 'replaced')
local outcomes = publish(groups_from(3))
acted()
return woke(outcomes)
