-- with: audit
-- ARGV: now, audit entries.
for place = 2, #ARGV do put_act(ARGV[place]) end
return 1
