-- one: store one job that is due now and has none of what most jobs leave out: what enqueue does, in half the time, since
-- nothing is made for it that it does not need. So no prelude comes before it.
--
-- ARGV[1]  id
-- ARGV[2]  body
-- ARGV[3]  priority (5 digits)
-- ARGV[4]  queue
-- ARGV[5]  task
-- ARGV[6]  its record, without what follows the needs
-- ARGV[7]  the version of the layout
-- answers  nothing; or, if it was there already, its position and id, as enqueue does
--
-- The first write of this script is one that the server refuses when memory is full: nothing is half-stored.

local call, base = redis.call, KEYS[1]
local id, body, priority, queue, task, record, layout = unpack(ARGV)
local now = clock()
local now_text = string.format('%018.0f', now)
local whole = record .. '\178' .. now_text .. '\178' .. now_text -- \178 begins a string of 18 bytes
if call('MSETNX', base .. 'j:' .. id, whole, base .. 'b:' .. id, body) == 0 then
  return { 1, id }
end
call('ZADD', base .. 'ids', 0, id)
call('ZADD', base .. 'o:' .. queue .. '\t' .. task, 0, priority .. now_text .. id)
-- A queue that has lanes is known.
if call('SADD', base .. 't:' .. queue, task) == 1 and call('SADD', base .. 'queues', queue) == 1 then
  call('SET', base .. 'layout', layout, 'NX')
end
-- Those who are handed a job wait on, and so may others: the queue stays marked.
if call('SISMEMBER', base .. 'sleeping', queue) == 1 and hand(now, queue) ~= id then
  call('SREM', base .. 'sleeping', queue)
  local paused = string.find(call('HGET', base .. 'settings', queue) or '', 'p', 1, true)
  call('PUBLISH', base .. 'wake', paused and '\n' .. queue or queue)
end
return {}
