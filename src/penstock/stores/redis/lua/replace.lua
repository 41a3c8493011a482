-- with: publishing audit
-- now, the dead one, then the group of the entry in its stead.
local t = take_dead(ARGV[2])
if not t then return woke({}) end
finish(t, 'redrive', 'cancelled', 'replaced')
local outcomes = publish(groups_from(3))
acted()
return woke(outcomes)
