-- with: items waiting documents audit
-- ARGV: now; the numbers of expected versions, saves, deletes and words of items, and 1 to touch
-- the directory; the holds of entries as JSON; fields with expected versions; documents to save;
-- fields to delete; the document that gets the answers, or four empty words; items; groups of entries.
-- A function of its own: a script has at most 200 local variables.
local function advance()
    local expected, saves, deletes, words, touch =
        match(ARGV[2], '^(%d+) (%d+) (%d+) (%d+) (%d)$')
    local first_save = 4 + 2 * expected
    local first_delete = first_save + 4 * saves
    local outcome = first_delete + deletes
    local first_item = outcome + 4
    local first_group = first_item + words
    for place = 4, first_save - 1, 2 do
        if version_of(ARGV[place]) ~= ARGV[place + 1] then return woke({}) end
    end
    local groups = groups_from(first_group)
    local refused = refusals(groups)
    if refused then
        table.insert(refused, 1, 'refused')
        return woke({refused, {}})
    end
    for place = first_save, first_delete - 1, 4 do save_document(unpack(ARGV, place, place + 3)) end
    for place = first_delete, outcome - 1 do delete_document(ARGV[place]) end
    if touch == '1' then call('HINCRBY', fact, 'directory', 1) end
    local outcomes = publish(groups)
    if ARGV[3] ~= '' then hold_published(cjson.decode(ARGV[3]), expand(outcomes)) end
    local answers = apply_items(first_item, first_group)
    if ARGV[outcome] ~= '' then
        save_document(ARGV[outcome], ARGV[outcome + 1], ARGV[outcome + 2], table.concat(answers, '\n'))
    end
    local done = #answers == 0
    for _, each in ipairs(answers) do done = done or sub(each, 1, 5) == 'done ' end
    if done then acted() end
    table.insert(outcomes, 1, 'written')
    return woke({outcomes, answers})
end
return advance()
