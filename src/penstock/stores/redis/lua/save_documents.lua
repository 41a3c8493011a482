-- with: documents audit
-- ARGV: now, then for each: kind and name, the expected version or '-', expiry, body.
local answers = {}
for place = 2, #ARGV, 4 do
    answers[#answers + 1] = save_document(unpack(ARGV, place, place + 3))
end
acted_if(answers)
return answers
