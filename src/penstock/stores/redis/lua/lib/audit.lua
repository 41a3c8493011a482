-- The audit entry of a script, appended to the time argument, if any.
-- keys: act

local moment, said = match(ARGV[1], '^(%d*)|(.*)$')
if moment and moment ~= '' then
    now = tonumber(moment)
    now_text = whole(now)
end

local function put_act(text)
    local id = whole(call('HINCRBY', fact, 'act', 1))
    call('XADD', act, id .. '-0', 'r', now_text .. ' ' .. text)
end

local function acted()
    if said then put_act(said) end
end

-- True if at least one was done.
local function acted_if(answers)
    for _, answer in ipairs(answers) do
        if answer == 'done' or answer == 'requested' or answer == 1 then return acted() end
    end
end
