-- sweep: do what a claim does to jobs whose lease or time to start expired, in every queue.
--
-- ARGV[1]  limit
-- answers  how many there were

local limit = tonumber(ARGV[1])
local leases, queued = {}, {}
for _, queue in ipairs(call('SMEMBERS', base .. 'queues')) do
  leases[#leases + 1] = { base .. 'l:' .. queue, now_text }
  leases[#leases + 1] = { base .. 'x:' .. queue, now_text }
  queued[#queued + 1] = { base .. 'y:' .. queue, now_text }
end
local found = oldest(leases, limit)
for _, entry in ipairs(oldest(queued, limit - #found)) do
  found[#found + 1] = entry
end
local ids = {}
for i, entry in ipairs(found) do
  ids[i] = sub(entry[2], 1, 32)
end
load(ids)
needs_no_memory()
for i, id in ipairs(ids) do
  local r = jobs[id]
  local state = r[STATE] -- one may have been cancelled with its flow since
  if state == 'r' then
    drop(base .. 'late:' .. r[QUEUE], place(r, id) .. r[TASK])
  end
  if (state == 'r' or state == 'q') and not is_over(r, id) then
    close_books(r, id)
    put_back(r, id, r[RUN_AT])
  end
end
flush()
return #ids
