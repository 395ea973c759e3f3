-- Shared by get and find: all that is known about jobs.

-- For each: id, record, body, result or nothing, list of errors, report or nothing.
local function look(ids)
  local answers = {}
  for _, id in ipairs(ids) do
    local found = call('MGET', base .. 'j:' .. id, base .. 'b:' .. id, base .. 'r:' .. id, base .. 'p:' .. id)
    if found[1] then
      local n = #answers
      answers[n + 1], answers[n + 2], answers[n + 3] = id, found[1], found[2]
      answers[n + 4] = found[3] or ''
      answers[n + 5] = call('LRANGE', base .. 'e:' .. id, 0, -1)
      answers[n + 6] = found[4] or ''
    end
  end
  return answers
end
