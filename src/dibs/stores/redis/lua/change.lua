-- change: an operator's verb, on the next jobs that match, newest id first.
--
-- ARGV[1], ARGV[2]  see scan.lua; the states of the filter are those that the verb applies to
-- ARGV[3]  limit
-- ARGV[4]  cancel, force, requeue, reschedule, reprioritise or delete
-- ARGV[5]  the new run_at (18 digits) or priority (5 digits)
-- ARGV[6]  cmsgpack list of ids that matched when the verb began and were cancelled with their flows since, or ''
-- answers  where to go on, or '' at the end; how many matched; how many changed; the last that matched; then the
--          ids that this call has cancelled so and that would have matched in the next

local limit, verb, value = tonumber(ARGV[3]), ARGV[4], ARGV[5]
local verbs = {}
local restarted, again = {}, {} -- steps that begin again, and their flows

local function cancel(r, id, force)
  if r[FINISHED] > 0 then
    return 1 -- with its flow, because of another
  end
  r[CANCEL] = 1
  if r[STATE] == 'r' then
    ask(r)
  end
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
  if r[FLOW] == '' then
    put_back(r, id, now_text)
  else
    r[STATE], r[RUN_AT] = '', now_text -- until it is known what it has to wait for
    restarted[id], again[r[FLOW]] = true, true
  end
  gone[#gone + 1] = base .. 'r:' .. id
  local report = call('GET', base .. 'p:' .. id)
  if report then
    put(base .. 'p:' .. id, sub(report, (string.find(report, '%z')))) -- the lines alone; %z is a NUL
  end
  return 1
end

local function move(r, id, priority, run_at)
  if r[STATE] == 'w' then
    r[PRIORITY], r[RUN_AT] = priority, run_at
    save(id)
  else
    leave(r, id)
    r[PRIORITY] = priority
    put_back(r, id, run_at)
  end
  return 1
end

function verbs.reschedule(r, id)
  return move(r, id, r[PRIORITY], value)
end

function verbs.reprioritise(r, id)
  return move(r, id, value, r[RUN_AT])
end

function verbs.delete(r, id)
  leave(r, id)
  free_key(r, id)
  if r[FLOW] ~= '' and unfinished(r) then
    r[STATE] = 'c'
    steps().ended(r, id)
  end
  remove(r, id)
  return 1
end

needs_no_memory()
if flows then
  examined = FEW -- so that one call is one chunk
end
if ARGV[6] ~= '' then
  also = as_set(unpack_record(ARGV[6]))
end

-- All are chosen before the first is changed: what happens to a step may change what others look like.
local chosen, count, last = {}, 0, ''
local go_on = scan(function(id)
  chosen[#chosen + 1] = id
  last = id
  return #chosen < limit
end)
local answers = { go_on, #chosen, 0, last }
steps().reached = function(r, id)
  if id < last and matches(r) then
    answers[#answers + 1] = id
  end
end
for _, id in ipairs(chosen) do
  count = count + verbs[verb](jobs[id], id)
end
for flow in pairs(again) do
  begin_again(flow, restarted)
end
unlink()
flush()
answers[3] = count
return answers
