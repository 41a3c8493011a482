-- with: lease ids
-- ARGV: now, bound of ids, limit, state, type, step, queues. With a step of -1 newest first, with 1
-- oldest first. One call scans some thousands of ids and returns the bound of the next call, or
-- nothing at the end.
local bound, limit, state, type_ = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[5]
local step, wanted, found = tonumber(ARGV[6]), {}, {}
for place = 7, #ARGV do wanted[ARGV[place]] = true end
if step < 0 then bound = math.min(bound, last_id + 1) end

local function fits(id, value)
    local head_of = value and heading(value)
    return head_of and wanted[head_of.queue] and (type_ == '' or head_of.type == type_)
        and (state == '' or state_of(id) == state)
end

for _ = 1, 20 do
    local ids, numbers = ids_from(bound, step, 200)
    if #ids == 0 then return {found, ''} end
    for place, value in ipairs(call('HMGET', message, unpack(ids))) do
        if fits(ids[place], value) then
            found[#found + 1] = ids[place]
            if #found == limit then return {found, ''} end
        end
    end
    bound = numbers[#numbers]
end
return {found, whole(bound)}
