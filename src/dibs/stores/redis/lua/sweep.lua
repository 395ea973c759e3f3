-- sweep: do what a claim does to jobs whose lease expired, in every queue.
--
-- ARGV[1]  limit
-- ARGV[2]  a lease of a queue, as in l: and x:, to look at no other job; or nothing
-- ARGV[3]  that queue
-- answers  how many there were

local function only(lease, queue)
  load({ sub(lease, 1, 32) })
  local r = jobs[sub(lease, 1, 32)]
  return r and r[STATE] == 'r' and r[LOCKED] <= now and { { queue, lease } } or {}
end

local sources = {}
for _, queue in ipairs(call('SMEMBERS', base .. 'queues')) do
  sources[#sources + 1] = { base .. 'l:' .. queue, now_text }
  sources[#sources + 1] = { base .. 'x:' .. queue, now_text }
end
local found = ARGV[2] and only(ARGV[2], ARGV[3]) or oldest(sources, tonumber(ARGV[1]))
local ids = {}
for i, entry in ipairs(found) do
  ids[i] = sub(entry[2], 1, 32)
end
load(ids)
needs_no_memory()
for i, id in ipairs(ids) do
  local r = jobs[id]
  drop(base .. 'late:' .. r[QUEUE], place(r, id) .. r[TASK])
  if recover(r, id) then
    put_back(r, id, r[RUN_AT])
  end
end
flush()
return #ids
