-- keys: document document_line document_until
-- with: audit
-- ARGV: now, then kind and name of each.
local count = 0
for place = 2, #ARGV do
    local field = ARGV[place]
    count = count + call('HDEL', document, field)
    call('ZREM', document_line, field)
    call('ZREM', document_until, field)
end
if count > 0 then acted() end
return count
