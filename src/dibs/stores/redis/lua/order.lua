-- Shared by the verbs that look for due jobs: cursors over lexicographic sets, in the order of the queue.
--
-- A cursor gives only members whose run_at has come. It never reads through the future jobs of one
-- priority to get to the next: past the first of them it goes on behind that priority.

-- Future jobs of a priority stand behind its due ones.
local function refill_fifo(c)
  while true do
    local found = call('ZRANGEBYLEX', c.key, c.from, '+', 'LIMIT', 0, c.chunk)
    local n = #found
    if n == 0 then
      c.done = true
      return
    end
    c.some = true
    local last = found[n]
    if sub(last, 1, 5) == sub(found[1], 1, 5) and sub(last, 6, 23) <= now_text then
      c.buffer, c.size, c.at, c.from = found, n, 1, '(' .. last
      return
    end
    local due = n
    c.from = '(' .. last
    for i = 1, n do
      if sub(found[i], 6, 23) > now_text then
        due = i - 1
        c.from = '(' .. sub(found[i], 1, 5) .. '\255'
        break
      end
    end
    if due > 0 then
      c.buffer, c.size, c.at = found, due, 1
      return
    end
  end
end

local function before_fifo(a, b)
  return sub(a, 1, 55) < sub(b, 1, 55)
end

local function cursor(key, lane)
  return { key = key, lane = lane, at = 1, size = 0, from = '-' }
end

-- What a queue's settings say about its order: how a cursor is filled, which of two places comes first, and how one
-- cursor is made several, if it has to be.
local function order_of(settings)
  if string.find(settings, 'l', 1, true) then
    return newest_first()
  end
  local ageing = string.match(settings, 'a(%d+)')
  return ageing and age(tonumber(ageing)) or { refill = refill_fifo, before = before_fifo }
end

-- A cursor for each lane that may have queued jobs, and one for those whose lease expired.
-- known: set of tasks, or nil for any. rooms: see room.lua, or nil for no limits.
local function open(queue, known, limit, order, rooms)
  local all = {}
  for _, lane in ipairs(call('SMEMBERS', base .. 't:' .. queue)) do
    local task, limit_key = lane, nil
    if string.find(lane, '\t', 1, true) then
      task, limit_key = string.match(lane, '(.*)\t(.*)')
    end
    if (not known or known[task]) and (not rooms or rooms.open(task, limit_key)) then
      local c = cursor(order_key(queue, lane), lane)
      c.task, c.limit_key = task, limit_key
      all[#all + 1] = c
    end
  end
  if call('EXISTS', base .. 'late:' .. queue) == 1 then
    local late = cursor(base .. 'late:' .. queue)
    late.late = true
    all[#all + 1] = late
  end
  if order.split then
    all = order.split(all)
  end
  local chunk = limit
  if #all > 1 then
    chunk = math.max(math.ceil(limit / #all), math.min(limit, 16))
  end
  for _, c in ipairs(all) do
    c.chunk, c.refill = chunk, order.refill
  end
  return all
end

-- The cursor that stands at the first due job of all, or nil.
local function first(cursors, before)
  local best
  local i = 1
  while i <= #cursors do
    local c = cursors[i]
    if c.at > c.size and not c.done then
      c.refill(c)
    end
    if c.done and c.at > c.size then
      table.remove(cursors, i)
    else
      if not best or before(c.buffer[c.at], best.buffer[best.at]) then
        best = c
      end
      i = i + 1
    end
  end
  return best
end

-- Bring up to 1000 leases that expired into the order. True if there may be more.
local function notice(queue)
  local gone = call('ZRANGEBYSCORE', base .. 'l:' .. queue, '-inf', now_text, 'WITHSCORES', 'LIMIT', 0, 1000)
  if #gone == 0 then
    return false
  end
  local members, expired, hints = {}, {}, {}
  for i = 1, #gone, 2 do
    local lease = gone[i]
    members[#members + 1] = lease
    expired[i], expired[i + 1] = gone[i + 1], lease
    hints[i], hints[i + 1] = 0, sub(lease, 33, 55) .. sub(lease, 1, 32) .. sub(lease, 56)
  end
  send('ZREM', base .. 'l:' .. queue, members)
  send('ZADD', base .. 'x:' .. queue, expired)
  send('ZADD', base .. 'late:' .. queue, hints)
  return #members == 1000
end
