-- with: publishing
-- All of them, or, if the second argument says so, none if one is refused.
local groups = groups_from(3)
local refused = ARGV[2] == 'atomic' and refusals(groups)
if refused then return woke(refused) end
local outcomes = publish(groups)
return woke(outcomes)
