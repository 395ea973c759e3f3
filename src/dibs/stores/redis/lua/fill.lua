-- fill: count the jobs of a task that were running before it had a limit, in short steps.
--
-- ARGV[1]  task
-- ARGV[2]  where to go on, or '' to begin
-- answers  where to go on, or '' at the end
--
-- Jobs that are claimed meanwhile count themselves. A scan meets all that are there from its beginning to its end.

local EXAMINED = 1000 -- leases looked at in one call, give or take some

local task, left, cursor = ARGV[1], {}, '0'
if ARGV[2] ~= '' then
  left, cursor = unpack(unpack_record(ARGV[2]))
else
  for _, queue in ipairs(call('SMEMBERS', base .. 'queues')) do
    left[#left + 1] = base .. 'l:' .. queue
    left[#left + 1] = base .. 'x:' .. queue
  end
end

local ids, examined = {}, 0
while #left > 0 and examined < EXAMINED do
  local answer = call('ZSCAN', left[#left], cursor, 'COUNT', EXAMINED)
  for i = 1, #answer[2], 2 do
    local lease = answer[2][i]
    if sub(lease, 56) == task then
      ids[#ids + 1] = sub(lease, 1, 32)
    end
  end
  cursor, examined = answer[1], examined + #answer[2] / 2 + 1
  if cursor == '0' then
    left[#left] = nil
  end
end
load(ids)
for _, id in ipairs(ids) do
  local r = jobs[id]
  r[UNIQUE], r[EXPIRES], r[LIMIT_KEY], r[MARK] = r[UNIQUE] or '', r[EXPIRES] or '', r[LIMIT_KEY] or '', 1
  add(base .. 'c:t:' .. task, r[LOCKED], id)
  save(id)
end
flush()
return #left > 0 and pack({ left, cursor }) or ''
