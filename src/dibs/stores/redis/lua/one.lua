-- one: store one job that is due now and has none of what most jobs leave out: what enqueue does, in half the time, since
-- nothing is made for it that it does not need. So no prelude comes before it.
--
-- ARGV[1]  id
-- ARGV[2]  body
-- ARGV[3]  priority (5 digits)
-- ARGV[4]  queue
-- ARGV[5]  task
-- ARGV[6]  its record, from the priority on, without what follows the needs
-- ARGV[7]  the version of the layout
-- answers  nothing; or, if it was there already, its position and id, as enqueue does
--
-- The first write of this script is one that the server refuses when memory is full: nothing is half-stored.

local call, base = redis.call, KEYS[1]
local id, body, priority, queue, task, record, layout = unpack(ARGV)
local now = clock()
local now_text = stamp(now)
local waited_for, worker, lease = call('SISMEMBER', base .. 'sleeping', queue) == 1, nil, nil
if waited_for then
  worker, lease = taker(now, now_text, queue, task)
end
-- Up to the priority; an array of 19 begins with these three bytes. \178 begins a string of 18 bytes.
local begun = worker and cmsgpack.pack('r', 1, 1, worker, now + lease, now, 0, 0, '') or '\161q\0\0\160\0\0\0\0\160'
local whole = '\220\0\19' .. begun .. record .. '\178' .. now_text .. '\178' .. now_text
if call('MSETNX', base .. 'j:' .. id, whole, base .. 'b:' .. id, body) == 0 then
  return { 1, id }
end
call('ZADD', base .. 'ids', '0', id)
if worker then
  call('ZADD', base .. 'l:' .. queue, stamp(now + lease), id .. priority .. now_text .. task)
  call('HINCRBY', base .. 'held', worker, 1)
  call('SREM', base .. 'offers:' .. queue, worker)
  call('HDEL', base .. 'offers', worker)
  call('PUBLISH', base .. 'hand:' .. worker, id .. string.format('%08x', #whole) .. whole .. body)
else
  call('ZADD', base .. 'o:' .. queue .. '\t' .. task, '0', priority .. now_text .. id)
end
-- A queue that has lanes is known.
if (worker or call('SADD', base .. 't:' .. queue, task) == 1) and call('SADD', base .. 'queues', queue) == 1 then
  call('SET', base .. 'layout', layout, 'NX')
end
-- Those who are handed a job wait on, and so may others: the queue stays marked.
if waited_for and not worker and hand(now, queue) ~= id then
  call('SREM', base .. 'sleeping', queue)
  local paused = string.find(call('HGET', base .. 'settings', queue) or '', 'p', 1, true)
  call('PUBLISH', base .. 'wake', paused and '\n' .. queue or queue)
end
return {}
