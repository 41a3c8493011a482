-- with: publishing
-- Publishes all entries; with the second argument, all or none.
local groups = groups_from(3)
local refused = ARGV[2] == 'atomic' and refusals(groups)
if refused then return woke(refused) end
local outcomes = publish(groups)
return woke(outcomes)
