-- Steps of messages, and the order in which runs stored them.
-- keys: step step_line

local STEP = '^(%a+) (%d+) (%d) (%S+) (%d+) (%d+) (%d+) (%d+) ()'

local function step_field(id, name_, key) return id .. name_ .. '\0' .. key end

local function position_text(position) return format('%08x', position) end

-- "kind position done due at fence name_length key_length name key body"
local function put_step(id, fence, s)
    local field = step_field(id, s.name, s.key)
    local text = table.concat({
        s.kind, s.position, s.done, s.due, now_text, fence, #s.name, #s.key, '',
    }, ' ') .. s.name .. s.key .. s.body
    call('HSET', step, field, text)
    call('ZADD', step_line, 0, id .. position_text(s.position) .. sub(field, 15))
    return text
end

-- A step in ARGV: name, key, kind, position, done, due, body.
local function step_at(place)
    return {
        name = ARGV[place], key = ARGV[place + 1], kind = ARGV[place + 2],
        position = ARGV[place + 3], done = ARGV[place + 4], due = ARGV[place + 5],
        body = ARGV[place + 6],
    }
end

local function flag_steps(t)
    if not has(t.flags, STEPS) then t.flags = bit.bor(t.flags, STEPS) end
end
