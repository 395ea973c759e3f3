-- prune: drop old finished jobs, oldest first, and forget workers and queues that are gone.
--
-- ARGV[1]  limit
-- ARGV[2]  how long to remember workers, in microseconds
-- ARGV[3]  cmsgpack list of: state, how long it is kept, in microseconds
-- answers  how many jobs were dropped

local kept = unpack_record(ARGV[3])
local queues = call('SMEMBERS', base .. 'queues')
local sources = {}
for _, queue in ipairs(queues) do
  for i = 1, #kept, 2 do
    local key = base .. 'f:' .. kept[i] .. ':' .. queue
    sources[#sources + 1] = { key, string.format('%.0f', now - kept[i + 1]) }
  end
end
local found = oldest(sources, tonumber(ARGV[1]))

local ids = {}
for i, entry in ipairs(found) do
  ids[i] = entry[2]
end
if call('EXISTS', base .. 'flows') == 1 then -- or none of them can be a step
  load(ids)
end
for _, entry in ipairs(found) do
  drop(entry[1], entry[2])
  remove(jobs[entry[2]], entry[2])
end
unlink()
needs_no_memory()
flush()

local unseen = string.format('%.0f', now - tonumber(ARGV[2]))
for _, worker in ipairs(call('ZRANGEBYSCORE', base .. 'workers', '-inf', unseen, 'LIMIT', 0, 1000)) do
  if tonumber(call('HGET', base .. 'held', worker) or 0) <= 0 then
    call('ZREM', base .. 'workers', worker)
    call('HDEL', base .. 'info', worker)
  end
end

local function empty(queue)
  for _, part in ipairs({ 'l:', 'x:', 'w:', 'f:s:', 'f:f:', 'f:c:' }) do
    if call('EXISTS', base .. part .. queue) == 1 then
      return false
    end
  end
  for _, task in ipairs(call('SMEMBERS', base .. 't:' .. queue)) do
    if call('EXISTS', order_key(queue, task)) == 1 then
      return false
    end
    call('SREM', base .. 't:' .. queue, task)
  end
  return true
end

for _, queue in ipairs(queues) do
  if empty(queue) then
    call('SREM', base .. 'queues', queue)
    call('DEL', base .. 'late:' .. queue)
  end
end
return #found
