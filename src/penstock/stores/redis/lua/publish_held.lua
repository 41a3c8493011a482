-- with: publishing waiting
-- ARGV: now, the holds of entries as JSON, then the entries. Publishes all or none.
local groups = groups_from(3)
local refused = refusals(groups)
if refused then return woke(refused) end
local outcomes = publish(groups)
hold_published(cjson.decode(ARGV[2]), expand(outcomes))
return woke(outcomes)
