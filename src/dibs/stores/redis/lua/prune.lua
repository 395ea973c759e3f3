-- prune: drop old finished jobs, oldest first, and forget workers and queues that are gone.
--
-- ARGV[1]  limit
-- ARGV[2]  how long to remember workers, in microseconds
-- ARGV[3]  cmsgpack list of: state, how long it is kept, in microseconds
-- answers  how many jobs were dropped

local kept = unpack_record(ARGV[3])
local queues = call('SMEMBERS', base .. 'queues')
local sources, states = {}, {}
for _, queue in ipairs(queues) do
  for i = 1, #kept, 2 do
    local key = base .. 'f:' .. kept[i] .. ':' .. queue
    states[key] = kept[i]
    sources[#sources + 1] = { key, string.format('%.0f', now - kept[i + 1]) }
  end
end
local found = oldest(sources, tonumber(ARGV[1]))

local ids = {}
for i, entry in ipairs(found) do
  ids[i] = entry[2]
end
-- Otherwise none of them is a step, nor are their keys busy.
local function may_matter()
  for _, queue in ipairs(queues) do
    if call('EXISTS', base .. 'u:' .. queue) == 1 then
      return true
    end
  end
  return call('EXISTS', base .. 'flows') == 1
end

if may_matter() then
  load(ids)
end
needs_no_memory()
for _, entry in ipairs(found) do
  local r, id = jobs[entry[2]], entry[2]
  if r and r[UNIQUE] and r[UNIQUE] ~= '' then
    more().close_window(r, id)
  end
  drop(entry[1], id)
  if states[entry[1]] ~= 's' then
    drop(base .. 'z:' .. states[entry[1]], id)
  end
  remove(r, id)
end
unlink()
flush()

-- Buckets that are full are as good as none.
local function forget_buckets(key)
  local full = call('ZRANGEBYSCORE', key, '-inf', now_text, 'LIMIT', 0, 1000)
  if #full > 0 then
    call('ZREM', key, unpack(full))
  end
end

forget_buckets(base .. 'rates')
for _, queue in ipairs(queues) do
  forget_buckets(base .. 'rates:' .. queue)
end

local unseen = string.format('%.0f', now - tonumber(ARGV[2]))
call('ZREMRANGEBYSCORE', base .. 'asked', '-inf', unseen)
for _, worker in ipairs(call('ZRANGEBYSCORE', base .. 'workers', '-inf', unseen, 'LIMIT', 0, 1000)) do
  if tonumber(call('HGET', base .. 'held', worker) or 0) <= 0 then
    call('ZREM', base .. 'workers', worker)
    call('HDEL', base .. 'info', worker)
  end
end

local function empty(queue)
  for _, part in ipairs({ 'l:', 'x:', 'w:', 'f:s:', 'f:f:', 'f:c:', 'rates:' }) do
    if call('EXISTS', base .. part .. queue) == 1 then
      return false
    end
  end
  for _, lane in ipairs(call('SMEMBERS', base .. 't:' .. queue)) do
    if call('EXISTS', order_key(queue, lane)) == 1 then
      return false
    end
    call('SREM', base .. 't:' .. queue, lane)
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
