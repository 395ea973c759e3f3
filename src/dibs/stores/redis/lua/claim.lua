-- claim: take due jobs of one queue, first in the order first.
--
-- ARGV[1]  queue
-- ARGV[2]  worker
-- ARGV[3]  limit
-- ARGV[4]  lease in microseconds
-- ARGV[5]  cmsgpack list of the tasks that the worker knows, or '' for any
-- answers  1 if it stopped early to stay short and wants to be called again, else 0;
--          then for each claim: id, record, body

local queue, worker, limit, lease = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local settings = call('HGET', base .. 'settings', queue) or ''
if string.find(settings, 'p', 1, true) then
  return { 0 }
end
needs_no_memory()
if notice(queue) then
  return { 1 }
end

local known
if ARGV[5] ~= '' then
  known = {}
  for _, task in ipairs(unpack_record(ARGV[5])) do
    known[task] = true
  end
end

local lifo = string.find(settings, 'l', 1, true) ~= nil
local cursors = open(queue, known, limit, lifo)
local tasks = {}
for _, c in ipairs(cursors) do
  tasks[#tasks + 1] = c
end
local budget = limit + 1000
local taken = {}

-- The next jobs in the order: their ids, and for those whose lease expired their hints, by position: a job that was
-- requeued since can stand here twice, with an old hint and as itself.
local function upcoming(count)
  local ids, hints = {}, {}
  while #ids < count and budget > 0 do
    local c = first(cursors, lifo)
    if not c then
      break
    end
    local member = c.buffer[c.at]
    c.at = c.at + 1
    if not c.late or not known or known[sub(member, 56)] then
      -- Only what is taken, finished or forgotten counts: stopping without having got on would be for ever.
      budget = budget - 1
      local id = sub(member, 24, 55)
      ids[#ids + 1] = id
      if c.late then
        hints[#ids] = member
      end
    end
  end
  return ids, hints
end

local function take(r, id)
  r[STATE], r[WORKER], r[OUTCOME] = 'r', worker, ''
  r[ATTEMPTS], r[EPOCH] = r[ATTEMPTS] + 1, r[EPOCH] + 1
  r[STARTED], r[LOCKED] = now, now + lease
  add(index_key('l', queue), r[LOCKED], lease_of(r, id))
  hold(worker, 1)
  save(id)
  taken[#taken + 1] = id
end

-- True if the hint still tells the truth. A lease that is valid again, because the clock was set back, goes
-- back among the leases, or nobody would notice when it expires once more.
local function expired(r, hint, id)
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

while #taken < limit do
  local ids, hints = upcoming(limit - #taken)
  if #ids == 0 then
    break
  end
  load(ids)
  for i, id in ipairs(ids) do
    local r, hint = jobs[id], hints[i]
    if hint then
      drop(base .. 'late:' .. queue, hint)
      if expired(r, hint, id) and recover(r, id) then
        take(r, id)
      end
    elseif r then
      leave(r, id)
      take(r, id)
    end
  end
end

for _, c in ipairs(tasks) do
  if c.done and not c.some and not c.late then
    call('SREM', base .. 't:' .. queue, c.task)
  end
end
flush()

local answers = { (#taken < limit and budget <= 0) and 1 or 0 }
for from = 1, #taken, CHUNK do
  local upto = math.min(from + CHUNK - 1, #taken)
  local keys = {}
  for i = from, upto do
    keys[#keys + 1] = base .. 'b:' .. taken[i]
  end
  local bodies = call('MGET', unpack(keys))
  for i = from, upto do
    local id, n = taken[i], #answers
    answers[n + 1], answers[n + 2], answers[n + 3] = id, packed[id], bodies[i - from + 1]
  end
end
return answers
