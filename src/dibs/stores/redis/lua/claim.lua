-- claim: take due jobs of one queue, first in the order first.
--
-- ARGV[1]  queue
-- ARGV[2]  worker
-- ARGV[3]  limit
-- ARGV[4]  lease in microseconds
-- ARGV[5]  cmsgpack list of the tasks that the worker knows, or '' for any
-- answers  1 if it stopped early to stay short and wants to be called again, else 0;
--          a list of id and what it was given, for each step that needs others; then for each claim: id, record, body

local queue, worker, limit, lease = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local found = call('HMGET', base .. 'settings', queue, '')
local settings, limited = found[1] or '', found[2]
if string.find(settings, 'p', 1, true) then
  return { 0, {} }
end
needs_no_memory()
call('HDEL', base .. 'offers', worker)
if notice(queue) then
  return { 1, {} }
end

local known
if ARGV[5] ~= '' then
  known = {}
  for _, task in ipairs(unpack_record(ARGV[5])) do
    known[task] = true
  end
end

local order = order_of(settings)
local before = order.before
local rooms = limited and make_rooms(queue)
local cursors = open(queue, known, limit, order, rooms)
local lanes_met = {}
for _, c in ipairs(cursors) do
  lanes_met[#lanes_met + 1] = c
end
local budget = rooms and 500 or limit + 1000 -- to set a job aside takes longer than to take it
local taken = {}

-- The next jobs in the order: their ids, their cursors, and for those whose lease expired their hints, by position:
-- a job that was requeued since can stand here twice, with an old hint and as itself.
local function upcoming(count)
  local ids, from, hints = {}, {}, {}
  while #ids < count and budget > 0 do
    local c = first(cursors, before)
    if not c then
      break
    end
    local member = c.buffer[c.at]
    c.at = c.at + 1
    if not c.late or not known or known[sub(member, 56)] then
      -- Only what is taken, finished or forgotten counts: stopping without having got on would be for ever.
      budget = budget - 1
      local n = #ids + 1
      ids[n], from[n] = sub(member, 24, 55), c
      if c.late then
        hints[n] = member
      end
    end
  end
  return ids, from, hints
end

local function take(r, id)
  r[STATE], r[WORKER], r[OUTCOME] = 'r', worker, ''
  r[ATTEMPTS], r[EPOCH] = r[ATTEMPTS] + 1, r[EPOCH] + 1
  r[STARTED], r[LOCKED] = now, now + lease
  add(index_key('l', queue), r[LOCKED], lease_of(r, id))
  if r[UNIQUE] then
    count_in(r, id)
  end
  hold(worker, 1)
  save(id)
  taken[#taken + 1] = id
end

-- True if the hint still tells the truth. A lease that is valid again, because the clock was set back, goes
-- back among the leases, or nobody would notice when it expires once more.
local function still_late(r, hint, id)
  if not r or r[STATE] ~= 'r' or sub(hint, 1, 55) ~= place(r, id) then
    return false
  end
  if r[LOCKED] > now then
    drop(index_key('x', queue), lease_of(r, id))
    add(index_key('l', queue), r[LOCKED], lease_of(r, id))
    return false
  end
  return true
end

-- Take a job that may be started, if there is room for it.
local function start(r, id)
  if rooms and not rooms.open(r[TASK], r[LIMIT_KEY]) then
    return false
  end
  close_books(r, id)
  if rooms then
    rooms.start(r)
  end
  take(r, id)
  return true
end

local pass, leave_closed_lanes, look_further
local least = 0 -- jobs to look at in one go, at least
if rooms then
  -- Queued jobs whose time to start has passed are ended also where a limit closes their lane.
  local function add_expired()
    local places = {}
    local ids = call('ZRANGEBYSCORE', base .. 'y:' .. queue, '-inf', now_text, 'LIMIT', 0, 1000)
    load(ids)
    for _, id in ipairs(ids) do
      local r = jobs[id]
      if r[RUN_AT] <= now_text and (not known or known[r[TASK]]) then
        places[#places + 1] = place(r, id)
      end
    end
    table.sort(places, before)
    if #places > 0 then
      cursors[#cursors + 1] = { buffer = places, at = 1, size = #places, done = true, always = true }
    end
  end

  leave_closed_lanes = function()
    for i = #cursors, 1, -1 do
      local c = cursors[i]
      if not c.late and not c.always and not rooms.open(c.task, c.limit_key) then
        table.remove(cursors, i)
      end
    end
  end

  -- One that a limit holds back stays as it is. If it is that of its key, it makes way.
  pass = function(r, id, c)
    if not c.late and not c.limit_key and rooms.full_key(r) then
      rooms.set_aside(r, id)
    else
      budget = budget + 1
    end
  end

  -- Some were passed: more of them at once.
  look_further = function()
    least = math.min(2 * least + 10, 200)
    for _, c in ipairs(cursors) do
      c.chunk = math.max(c.chunk or 0, least)
    end
  end

  add_expired()
end

while #taken < limit do
  if rooms then
    leave_closed_lanes()
  end
  local ids, from, hints = upcoming(math.max(limit - #taken, least))
  if #ids == 0 then
    break
  end
  load(ids)
  local passed = false
  for i, id in ipairs(ids) do
    if #taken == limit then
      break
    end
    local r, hint = jobs[id], hints[i]
    local here
    if hint then
      here = still_late(r, hint, id)
    else
      here = r and r[STATE] == 'q' -- a step may have been cancelled with its flow just now
    end
    if here and not is_over(r, id) and not start(r, id) then
      pass(r, id, from[i])
      passed = true
    elseif hint then
      drop(base .. 'late:' .. queue, hint)
    end
  end
  if passed then
    look_further()
  end
end

for _, c in ipairs(lanes_met) do
  if c.done and not c.some and not c.late then
    call('SREM', base .. 't:' .. queue, c.lane)
  end
end
if rooms then
  rooms.close()
end
flush()

local of_flows, given = {}, {} -- steps, and what they were given
local answers = { (#taken < limit and budget <= 0) and 1 or 0, given }
for from = 1, #taken, CHUNK do
  local upto = math.min(from + CHUNK - 1, #taken)
  local keys = {}
  for i = from, upto do
    keys[#keys + 1] = base .. 'b:' .. taken[i]
  end
  local bodies = call('MGET', unpack(keys))
  for i = from, upto do
    local id, n = taken[i], #answers
    if jobs[id][FLOW] ~= '' then
      of_flows[#of_flows + 1] = id
    end
    answers[n + 1], answers[n + 2], answers[n + 3] = id, packed[id], bodies[i - from + 1]
  end
end
for from = 1, #of_flows, CHUNK do
  local upto = math.min(from + CHUNK - 1, #of_flows)
  local keys = {}
  for i = from, upto do
    keys[#keys + 1] = base .. 'i:' .. of_flows[i]
  end
  for i, inputs in ipairs(call('MGET', unpack(keys))) do
    if inputs then
      local n = #given
      given[n + 1], given[n + 2] = of_flows[from + i - 1], inputs
    end
  end
end
return answers
