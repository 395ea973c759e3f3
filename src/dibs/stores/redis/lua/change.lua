-- change: an operator's verb, on the next jobs that match, newest id first.
--
-- ARGV[1], ARGV[2]  see scan.lua; the states of the filter are those that the verb applies to
-- ARGV[3]  limit
-- ARGV[4]  cancel, force, requeue, reschedule, reprioritise or delete
-- ARGV[5]  the new run_at (18 digits) or priority (5 digits)
-- answers  where to go on, or '' at the end; how many matched; how many changed; the last that matched

local limit, verb, value = tonumber(ARGV[3]), ARGV[4], ARGV[5]
local verbs = {}
local gone = {}

local function cancel(r, id, force)
  r[CANCEL] = 1
  if force or r[STATE] ~= 'r' then
    leave(r, id)
    r[OUTCOME] = ''
    finish(r, id, 'c')
  end
  save(id)
  return 1
end

function verbs.cancel(r, id)
  return cancel(r, id, false)
end

function verbs.force(r, id)
  return cancel(r, id, true)
end

function verbs.requeue(r, id)
  if r[KEY] ~= '' and call('HSETNX', base .. 'k:' .. r[QUEUE], r[KEY], id) == 0 then
    return 0
  end
  leave(r, id)
  r[ATTEMPTS], r[CANCEL], r[WORKER], r[STARTED], r[FINISHED], r[OUTCOME] = 0, 0, '', 0, 0, ''
  put_back(r, id, now_text)
  gone[#gone + 1] = base .. 'r:' .. id
  local report = call('GET', base .. 'p:' .. id)
  if report then
    put(base .. 'p:' .. id, sub(report, (string.find(report, '%z')))) -- the lines alone; %z is a NUL
  end
  return 1
end

function verbs.reschedule(r, id)
  leave(r, id)
  put_back(r, id, value)
  return 1
end

function verbs.reprioritise(r, id)
  leave(r, id)
  r[PRIORITY] = value
  put_back(r, id, r[RUN_AT])
  return 1
end

function verbs.delete(r, id)
  leave(r, id)
  free_key(r, id)
  drop(base .. 'ids', id)
  for _, part in ipairs({ 'j:', 'b:', 'r:', 'e:', 'p:' }) do
    gone[#gone + 1] = base .. part .. id
  end
  return 1
end

needs_no_memory()
local matched, count, last = 0, 0, ''
local go_on = scan(function(id, r)
  count = count + verbs[verb](r, id)
  matched, last = matched + 1, id
  return matched < limit
end)
for from = 1, #gone, CHUNK do
  call('UNLINK', unpack(gone, from, math.min(from + CHUNK - 1, #gone)))
end
flush()
return { go_on, matched, count, last }
