-- with: audit
-- now, then the acts.
for place = 2, #ARGV do put_act(ARGV[place]) end
return 1
