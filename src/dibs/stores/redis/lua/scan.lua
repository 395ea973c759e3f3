-- Shared by find, count and change: walk the jobs that match a filter, newest id first, in short steps.
--
-- ARGV[1]  cmsgpack filter: ids, queues, tasks, states, workers, keys (lists, or 0 for any); created since,
--          created before, finished since, finished before (18 digits, or '' for any); flows (list, or 0 for any).
--          ids: newest first, all behind ARGV[2]
-- ARGV[2]  the id to start behind, or ''

local examined = 4000 -- jobs looked at in one call
local FEW = 20000 -- when the indexes of the asked queues and states hold no more than this, they are read

local filter = unpack_record(ARGV[1])
local after = ARGV[2]

local function as_set(list)
  if type(list) ~= 'table' then
    return nil
  end
  local set = {}
  for _, value in ipairs(list) do
    set[value] = true
  end
  return set
end

local queues, tasks, states = as_set(filter[2]), as_set(filter[3]), as_set(filter[4])
local workers, keys, flows = as_set(filter[5]), as_set(filter[6]), as_set(filter[11])
local also = {} -- ids that matched before, whatever they look like now
local created_since, created_before, finished_since, finished_before =
  filter[7], filter[8], filter[9], filter[10]

local function between(text, since, upto)
  return (since == '' or text >= since) and (upto == '' or text < upto)
end

local function matches(r)
  if (queues and not queues[r[QUEUE]]) or (tasks and not tasks[r[TASK]]) then
    return false
  end
  if (states and not states[r[STATE]]) or (workers and not workers[r[WORKER]]) then
    return false
  end
  if (keys and not keys[r[KEY]]) or (flows and not flows[r[FLOW]]) then
    return false
  end
  if not between(r[CREATED], created_since, created_before) then
    return false
  end
  if finished_since ~= '' or finished_before ~= '' then
    return r[FINISHED] > 0 and between(stamp(r[FINISHED]), finished_since, finished_before)
  end
  return true
end

-- The indexes that hold all jobs that can match, with where the id stands in a member; nil if too many.
local function indexes()
  if not queues and not states then
    return nil
  end
  local found, total = {}, 0
  local function consider(key, from, upto)
    local size = call('ZCARD', key)
    if size > 0 then
      total = total + size
      found[#found + 1] = { key, from, upto }
    end
  end
  local function consider_state(state, queue)
    if state == 'q' then
      for _, lane in ipairs(call('SMEMBERS', base .. 't:' .. queue)) do
        if not tasks or tasks[string.match(lane, '^[^\t]+')] then
          consider(order_key(queue, lane), 24, 55)
        end
      end
    elseif state == 'r' then
      consider(base .. 'l:' .. queue, 1, 32)
      consider(base .. 'x:' .. queue, 1, 32)
    elseif state == 'w' then
      consider(base .. 'w:' .. queue, 1, 32)
    else
      consider(base .. 'f:' .. state .. ':' .. queue, 1, 32)
    end
  end
  local asked = queues and filter[2] or call('SMEMBERS', base .. 'queues')
  if #asked > 100 then
    return nil
  end
  for _, queue in ipairs(asked) do
    for _, state in ipairs({ 'w', 'q', 'r', 's', 'f', 'c' }) do
      if not states or states[state] then
        consider_state(state, queue)
      end
      if total > FEW then
        return nil
      end
    end
  end
  return found
end

-- The jobs of the asked flows; nil if too many.
local function steps_of_flows()
  local total, ids = 0, {}
  for flow in pairs(flows) do
    total = total + call('HLEN', base .. 's:' .. flow)
  end
  if total > FEW then
    return nil
  end
  for flow in pairs(flows) do
    for _, id in ipairs(call('HVALS', base .. 's:' .. flow)) do
      ids[#ids + 1] = id
    end
  end
  return ids
end

local function members(found)
  local ids = {}
  for id in pairs(also) do
    ids[#ids + 1] = id
  end
  for _, index in ipairs(found) do
    for _, member in ipairs(call('ZRANGE', index[1], 0, -1)) do
      local id = sub(member, index[2], index[3])
      if not also[id] then
        ids[#ids + 1] = id
      end
    end
  end
  return ids
end

-- Those behind the start, newest first; and whether there are more.
local function gather(all)
  local ids = {}
  for _, id in ipairs(all) do
    if after == '' or id < after then
      ids[#ids + 1] = id
    end
  end
  table.sort(ids)
  local newest_first, n = {}, #ids
  for i = 1, math.min(n, examined) do
    newest_first[i] = ids[n + 1 - i]
  end
  return newest_first, n > examined
end

-- All jobs that can match, if they are few.
local function candidates()
  if flows then
    return steps_of_flows()
  end
  local found = indexes()
  return found and members(found)
end

-- The next failed and cancelled jobs, if only such are asked for; and whether there are more.
local function unsuccessful(from)
  if not states or states.w or states.q or states.r or states.s then
    return nil
  end
  local found, more = {}, false
  for state in pairs(states) do
    local ids = call('ZREVRANGEBYLEX', base .. 'z:' .. state, from, '-', 'LIMIT', 0, examined)
    more = more or #ids == examined
    for _, id in ipairs(ids) do
      found[#found + 1] = id
    end
  end
  table.sort(found, function(a, b)
    return a > b
  end)
  more = more or #found > examined
  for i = #found, examined + 1, -1 do
    found[i] = nil
  end
  return found, more
end

-- Hand the ids of matching jobs to visit, until it answers false. Answers the last id looked at, or '' if
-- there are no more jobs behind it.
local function scan(visit)
  local ids, more
  local few = type(filter[1]) ~= 'table' and candidates()
  if type(filter[1]) == 'table' then
    ids = filter[1]
  elseif few then
    ids, more = gather(few)
  else
    local from = after == '' and '+' or '(' .. after
    ids, more = unsuccessful(from)
    if not ids then
      ids = call('ZREVRANGEBYLEX', base .. 'ids', from, '-', 'LIMIT', 0, examined)
      more = #ids == examined
    end
  end
  local step = 500
  for from = 1, #ids, step do
    local part = { unpack(ids, from, math.min(from + step - 1, #ids)) }
    load(part)
    for i, id in ipairs(part) do
      local r = jobs[id]
      if r and (matches(r) or also[id]) and not visit(id, r) then
        return from + i - 1 == #ids and not more and '' or id
      end
    end
  end
  return more and ids[#ids] or ''
end
