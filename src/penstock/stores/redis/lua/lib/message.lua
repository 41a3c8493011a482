-- A message: "created rank run_at expires queue priority type_length meta_length type meta body".
-- keys: message

local HEAD = '^(%d+) (%x+) (%S+) (%S+) (%x+) (%-?%d+) (%d+) (%d+) ()'

-- Returns the fields before the body.
local function heading(value)
    local created, rank, run_at, expires, queue, priority, types, metas, start = match(value, HEAD)
    return {
        created = created, rank = rank, run_at = run_at, expires = expires, queue = queue,
        type = sub(value, start, start + types - 1), body = start + types + metas,
    }
end
