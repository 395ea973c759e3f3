-- Put before one.lua: a job for somebody who waits is claimed for them here, by the offer that they left, and goes out with
-- the call. One way less until it starts, and nobody else is woken for nothing.

-- Answers the id of the job that was handed over, or nil. Offers of those who are gone are dropped.
local function hand(now, queue)
  local call, base = redis.call, KEYS[1]
  local worker = call('SPOP', base .. 'offers:' .. queue)
  while worker do
    local offer, channel = call('HGET', base .. 'offers', worker), base .. 'hand:' .. worker
    call('HDEL', base .. 'offers', worker)
    local lease, good_until, tasks = unpack(offer and cmsgpack.unpack(offer) or {})
    if lease and good_until >= now and call('PUBSUB', 'NUMSUB', channel)[2] > 0 then
      local claimed = few(now, queue, worker, 1, lease, tasks)
      if claimed then
        call('PUBLISH', channel, claimed[3] .. string.format('%08x', #claimed[4]) .. claimed[4] .. claimed[5])
      end
      return claimed and claimed[3]
    end
    worker = call('SPOP', base .. 'offers:' .. queue)
  end
end

-- Who takes a new job as it comes, and for how long: somebody whose offer is good, if no other job comes before it. Only looks.
local function taker(now, now_text, queue, task)
  local call, base = redis.call, KEYS[1]
  local worker = call('SRANDMEMBER', base .. 'offers:' .. queue)
  local offer = worker and call('HGET', base .. 'offers', worker)
  local lease, good_until, tasks = unpack(offer and cmsgpack.unpack(offer) or {})
  if not lease or good_until < now or call('PUBSUB', 'NUMSUB', base .. 'hand:' .. worker)[2] == 0 then
    return nil
  end
  local known = {}
  for _, each in ipairs(tasks ~= '' and cmsgpack.unpack(tasks) or {}) do
    known[each] = true
  end
  if not (tasks == '' or known[task]) or not is_usual(queue, now_text) then
    return nil
  end
  for _, lane in ipairs(call('SMEMBERS', base .. 't:' .. queue)) do
    local limited = string.find(lane, '\t', 1, true)
    if limited or (tasks == '' or known[lane]) and call('EXISTS', base .. 'o:' .. queue .. '\t' .. lane) == 1 then
      return nil
    end
  end
  return worker, lease
end
