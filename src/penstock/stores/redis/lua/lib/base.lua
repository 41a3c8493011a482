-- The preamble of every script.
-- keys: fact

-- Redis before 7 replicates the script itself unless effects replication is requested.
if redis.replicate_commands then redis.replicate_commands() end

local call, format, match, sub = redis.call, string.format, string.match, string.sub
local NONE = '-'
local NEVER = '9007199254740991'
local FINAL = {completed = true, failed = true, expired = true, cancelled = true}

-- `..` rounds numbers with more than 14 digits.
local function whole(number) return format('%.0f', number) end

-- Encodes a number so that it sorts as text.
local function hex(number) return format('%014x', number) end

local function has(flags, flag) return bit.band(flags, flag) ~= 0 end

local now = tonumber(ARGV[1])
if not now then
    local time = call('TIME')
    now = time[1] * 1000000 + time[2]
end
local now_text = whole(now)

-- Queues that have new work.
local woken = {}

-- Publishes the notice and returns the queues to the caller with its result.
local function woke(reply)
    local queues = {}
    for queue_id in pairs(woken) do queues[#queues + 1] = whole(tonumber(queue_id, 16)) end
    local told_of = table.concat(queues, ',')
    if told_of ~= '' then call('PUBLISH', fact .. ':wake', told_of) end
    return {reply, told_of}
end

-- unpack is limited to some thousands of values.
local function in_parts(arguments, command, key)
    for start = 1, #arguments, 2000 do
        call(command, key, unpack(arguments, start, math.min(start + 1999, #arguments)))
    end
end
