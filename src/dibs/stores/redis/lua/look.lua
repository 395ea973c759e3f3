-- Shared by get and find: all that is known about jobs.

-- For each: id, record, body, list of errors; then, each or nothing: result, report, needs, inputs.
local function look(ids)
  local answers = {}
  for _, id in ipairs(ids) do
    local keys = {}
    for i, part in ipairs({ 'j:', 'b:', 'r:', 'p:', 'n:', 'i:' }) do
      keys[i] = base .. part .. id
    end
    local found = call('MGET', unpack(keys))
    if found[1] then
      local n = #answers
      answers[n + 1], answers[n + 2], answers[n + 3] = id, found[1], found[2]
      answers[n + 4] = call('LRANGE', base .. 'e:' .. id, 0, -1)
      for i = 3, 6 do
        answers[n + 2 + i] = found[i] or ''
      end
    end
  end
  return answers
end
