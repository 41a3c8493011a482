-- with: documents audit
-- ARGV: now, then kind and name of each.
local count = 0
for place = 2, #ARGV do count = count + delete_document(ARGV[place]) end
if count > 0 then acted() end
return count
