-- Put before the prelude of claim, and before one: the commonest claims of all, in half the time, since nothing is made for them
-- that they do not need. The queue has no settings and no limits, no lease in it has expired, the first jobs in its order are due and
-- plain, and they are of one task, or only one is wanted. Any other claim is not made: nil, and nothing has changed.
--
-- What it takes, and what is answered: see claim.lua

-- A queue without settings and limits, where no lease has expired.
local function is_usual(queue, now_text)
  local call, base = redis.call, KEYS[1]
  local settings = call('HMGET', base .. 'settings', queue, '')
  return not settings[2]
    and not string.find(settings[1] or '', '[pla]')
    and #call('ZRANGEBYSCORE', base .. 'l:' .. queue, '-inf', now_text, 'LIMIT', 0, 1) == 0
    and call('EXISTS', base .. 'late:' .. queue) == 0
end

local function few(now, queue, worker, limit, lease, tasks)
  local call, sub, base = redis.call, string.sub, KEYS[1]
  local now_text, until_text = stamp(now), stamp(now + lease)
  local leases = base .. 'l:' .. queue

  -- The first places of a lane.
  local function first_of(lane, count)
    return call('ZRANGEBYLEX', base .. 'o:' .. queue .. '\t' .. lane, '-', '+', 'LIMIT', 0, count)
  end

  -- The tasks that have jobs and that the worker knows; nothing where limits have made more lanes than there are tasks.
  local function known_lanes()
    local lanes, known, found = call('SMEMBERS', base .. 't:' .. queue), {}, {}
    if tasks ~= '' then
      for _, task in ipairs(cmsgpack.unpack(tasks)) do
        known[task] = true
      end
    end
    for _, lane in ipairs(lanes) do
      if string.find(lane, '\t', 1, true) then
        return {}
      elseif tasks == '' or known[lane] then
        found[#found + 1] = lane
      end
    end
    return found
  end

  -- Of several lanes the only one that has jobs; if one job is wanted, that of the first.
  local function only_of(lanes)
    local best, place
    for _, lane in ipairs(lanes) do
      local head = first_of(lane, 1)[1]
      if head and best and limit > 1 then
        return nil
      elseif head and (not best or head < place) then
        best, place = lane, head
      end
    end
    return best
  end

  local lanes = is_usual(queue, now_text) and known_lanes() or {}
  local lane = lanes[1]
  if lanes[2] then
    lane = only_of(lanes)
  end
  local places = lane and first_of(lane, limit) or {}
  local last = places[#places]
  if not last or sub(last, 1, 5) ~= sub(places[1], 1, 5) or sub(last, 6, 23) > now_text then
    return nil
  end
  local records, bodies = {}, {}
  for i, place in ipairs(places) do
    local id = sub(place, 24)
    records[i], bodies[i] = base .. 'j:' .. id, base .. 'b:' .. id
  end
  local found = call('MGET', unpack(records))
  local sets, added, answers = {}, {}, { 0, {} }
  for i, place in ipairs(places) do
    local id, r = sub(place, 24), found[i] and cmsgpack.unpack(found[i])
    if not r or r[STATE] ~= 'q' or r[FLOW] ~= '' or r[UNIQUE] then
      return nil
    end
    r[STATE], r[WORKER], r[OUTCOME] = 'r', worker, ''
    r[ATTEMPTS], r[EPOCH] = r[ATTEMPTS] + 1, r[EPOCH] + 1
    r[STARTED], r[LOCKED] = now, now + lease
    local text = cmsgpack.pack(r)
    sets[2 * i - 1], sets[2 * i] = records[i], text
    added[2 * i - 1], added[2 * i] = until_text, id .. sub(place, 1, 23) .. lane
    answers[3 * i], answers[3 * i + 1] = id, text
  end
  call('HDEL', base .. 'offers', worker) -- and a script that has written goes on when memory is full
  call('MSET', unpack(sets))
  call('ZREM', base .. 'o:' .. queue .. '\t' .. lane, unpack(places))
  call('ZADD', leases, unpack(added))
  call('HINCRBY', base .. 'held', worker, #places)
  for i, body in ipairs(call('MGET', unpack(bodies))) do
    answers[3 * i + 2] = body
  end
  return answers
end
