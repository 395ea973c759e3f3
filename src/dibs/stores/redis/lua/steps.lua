-- Shared by the verbs that may end a step: what follows for its flow, in the same script.
--
-- The end of a step reads its flow and the steps that need it, no others. All steps are looked at only when
-- the flow is stopped or ends.

local dependents = {} -- flow and name of a step to the ids of those that need it, as one string
local results = {} -- id to result, of steps that succeed in this script
local reached -- told of a step, before it is cancelled with its flow

local function flow_of(id)
  local f = flow_records[id]
  if f == nil then
    local text = call('GET', base .. 'g:' .. id)
    f = text and unpack_record(text)
    flow_records[id] = f
  end
  return f
end

local function split(text, ids)
  for at = 1, #text, 32 do
    local id = sub(text, at, at + 31)
    ids[#ids + 1] = id
  end
end

local function load_new(ids)
  local new = {}
  for _, id in ipairs(ids) do
    if jobs[id] == nil then
      new[#new + 1] = id
    end
  end
  load(new)
end

local function dependents_of(r)
  local key = r[FLOW] .. r[STEP]
  local text = dependents[key]
  if not text then
    text = call('HGET', base .. 'd:' .. r[FLOW], r[STEP]) or ''
    dependents[key] = text
  end
  return text
end

-- The steps that wait and need this one, as a list of ids.
local function waiting_for(r)
  local ids, found = {}, {}
  split(dependents_of(r), ids)
  load_new(ids)
  for _, id in ipairs(ids) do
    local d = jobs[id]
    if d and d[STATE] == 'w' and d[FLOW] == r[FLOW] then
      found[#found + 1] = id
    end
  end
  return found
end

-- Read at once what the success of these steps will ask for.
local function expect(ids)
  local flows, others = {}, {}
  for _, id in ipairs(ids) do
    local r = jobs[id]
    if flow_records[r[FLOW]] == nil then
      flow_records[r[FLOW]] = false
      flows[#flows + 1] = r[FLOW]
    end
    split(dependents_of(r), others)
  end
  load_new(others)
  for from = 1, #flows, CHUNK do
    local upto = math.min(from + CHUNK - 1, #flows)
    local keys = {}
    for i = from, upto do
      keys[#keys + 1] = base .. 'g:' .. flows[i]
    end
    for i, text in ipairs(call('MGET', unpack(keys))) do
      flow_records[flows[from + i - 1]] = text and unpack_record(text)
    end
  end
end

local function later(run_at)
  return run_at > now_text and run_at or now_text
end

local function release(r, id)
  local input = r[STEP] .. '\0' .. (results[id] or 'null') .. '\0'
  for _, other in ipairs(waiting_for(r)) do
    local d = jobs[other]
    call('APPEND', base .. 'i:' .. other, input)
    d[NEEDS] = d[NEEDS] - 1
    if d[NEEDS] == 0 then
      leave(d, other)
      put_back(d, other, later(d[RUN_AT]))
    else
      save(other)
    end
  end
end

-- Cancel a step because of what happened to another.
local function drag(f, r, id)
  if reached then
    reached(r, id)
  end
  r[CANCEL] = 1
  if r[STATE] ~= 'r' then
    leave(r, id)
    r[OUTCOME] = ''
    end_alone(r, id, 'c')
    moved[id] = true
    f[OPEN] = f[OPEN] - 1
  end
  save(id)
end

local function unfinished(r)
  local state = r and r[STATE]
  return state == 'w' or state == 'q' or state == 'r'
end

local function stop(flow, f)
  local ids = call('HVALS', base .. 's:' .. flow)
  states_of(ids, true)
  for _, id in ipairs(ids) do
    if unfinished(jobs[id]) then
      drag(f, jobs[id], id)
    end
  end
end

-- Cancel all that wait for this step, for those that wait for it, and so on.
local function abandon(f, first)
  local ended, at = { first }, 1
  while ended[at] do
    for _, id in ipairs(waiting_for(ended[at])) do
      drag(f, jobs[id], id)
      ended[#ended + 1] = jobs[id]
    end
    at = at + 1
  end
end

local function end_flow(flow, f)
  f[FLOW_FINISHED] = now
  if f[FLOW_STATE] == 'r' then
    local counts = tally(flow)
    f[FLOW_STATE] = counts.f > 0 and 'f' or counts.c > 0 and 'c' or 's'
  end
end

step_ended = function(r, id)
  local flow, state = r[FLOW], r[STATE]
  local f = flow_of(flow)
  f[OPEN] = f[OPEN] - 1
  if state == 's' then
    release(r, id)
  elseif f[ON_FAILURE] == 'c' then
    abandon(f, r)
  elseif f[FLOW_STATE] == 'r' then
    f[FLOW_STATE] = state
    stop(flow, f)
  end
  if f[OPEN] == 0 then
    end_flow(flow, f)
  end
  flows_changed[flow] = true -- last: a flush on the way would take it for done
end
