-- Shared by the verbs that may end a step: what follows for its flow, in the same script.
--
-- The end of a step reads its flow and the steps that need it, no others. All steps are looked at only when
-- the flow is stopped or ends.

local dependents = {} -- id to the ids of those that need it, as one string
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

-- The steps that need this one, loaded.
local function needing(id)
  local text, ids = dependents[id], {}
  if not text then
    text = call('GET', base .. 'd:' .. id) or ''
    dependents[id] = text
  end
  split(text, ids)
  load_new(ids)
  return ids
end

-- Read at once what the success of these steps will ask for.
local function expect(ids)
  local keys, flows, others = {}, {}, {}
  for i, id in ipairs(ids) do
    keys[i] = base .. 'd:' .. id
    local flow = jobs[id][FLOW]
    if flow_records[flow] == nil then
      flow_records[flow] = false
      flows[#flows + 1] = flow
    end
  end
  for i, flow in ipairs(flows) do
    keys[#ids + i] = base .. 'g:' .. flow
  end
  for from = 1, #keys, CHUNK do
    local upto = math.min(from + CHUNK - 1, #keys)
    local found = call('MGET', unpack(keys, from, upto))
    for i = from, upto do
      local text = found[i - from + 1]
      if i > #ids then
        flow_records[flows[i - #ids]] = text and unpack_record(text)
      else
        dependents[ids[i]] = text or ''
        split(text or '', others)
      end
    end
  end
  load_new(others)
end

local function later(run_at)
  return run_at > now_text and run_at or now_text
end

local function release(r, id)
  local input = r[STEP] .. '\0' .. (results[id] or 'null') .. '\0'
  for _, other in ipairs(needing(id)) do
    local d = jobs[other]
    if d and d[STATE] == 'w' then
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
local function abandon(f, id)
  local ids, at = needing(id), 1
  while ids[at] do
    local r = jobs[ids[at]]
    if r and r[STATE] == 'w' then
      drag(f, r, ids[at])
      for _, other in ipairs(needing(ids[at])) do
        ids[#ids + 1] = other
      end
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
  flows_changed[flow] = true
  if state == 's' then
    release(r, id)
  elseif f[ON_FAILURE] == 'c' then
    abandon(f, id)
  elseif f[FLOW_STATE] == 'r' then
    f[FLOW_STATE] = state
    stop(flow, f)
  end
  if f[OPEN] == 0 then
    end_flow(flow, f)
  end
end
