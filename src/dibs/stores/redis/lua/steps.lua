-- Shared by the verbs that may end a step: what follows for its flow, in the same script.
--
-- The end of a step reads its flow and the steps that need it, no others. All steps are looked at only when
-- the flow is stopped or ends.
--
-- A server makes the functions of a script anew in each call. So these are made when the first step is met: plain
-- jobs do not pay for them.

local made

steps = function()
  if made then
    return made
  end
  local function later(run_at)
    return run_at > now_text and run_at or now_text
  end

  local function unfinished(r)
    local state = r and r[STATE]
    return state == 'w' or state == 'q' or state == 'r'
  end

  -- The states of jobs by id, as they are now. A packed record is not taken apart for it: an array of 16 or more begins
  -- with three bytes, and a string of one letter with one. With open, records of unfinished jobs are loaded.
  local function states_of(ids, open)
    local states = {}
    for from = 1, #ids, CHUNK do
      local upto = math.min(from + CHUNK - 1, #ids)
      local keys = {}
      for i = from, upto do
        keys[#keys + 1] = base .. 'j:' .. ids[i]
      end
      local found = call('MGET', unpack(keys))
      for i = from, upto do
        local id, text = ids[i], found[i - from + 1]
        if jobs[id] then
          states[id] = jobs[id][STATE]
        elseif text then
          local state = sub(text, 5, 5)
          states[id] = state
          if open and (state == 'w' or state == 'q' or state == 'r') then
            jobs[id] = unpack_record(text)
          end
        end
      end
    end
    return states
  end

  -- How many steps of a flow are in each state.
  local function tally(flow)
    local counts = { w = 0, q = 0, r = 0, s = 0, f = 0, c = 0 }
    for _, state in pairs(states_of(call('HVALS', base .. 's:' .. flow))) do
      counts[state] = counts[state] + 1
    end
    return counts
  end

  local known_needing = {} -- record of a step to the ids of those that need it

  local function load_new(ids)
    local new = {}
    for _, id in ipairs(ids) do
      if jobs[id] == nil then
        new[#new + 1] = id
      end
    end
    load(new)
  end

  local function forget(r)
    known_needing[r] = nil
  end

  -- The steps that need this one, whatever their state.
  local function needing(r)
    local ids = known_needing[r]
    if not ids then
      ids = {}
      local text = call('HGET', base .. 'd:' .. r[FLOW], r[STEP]) or ''
      for at = 1, #text, 32 do
        ids[#ids + 1] = sub(text, at, at + 31)
      end
      known_needing[r] = ids
    end
    return ids
  end

  -- Read at once what the success of steps with these records will ask for.
  local function expect(records)
    local others = {}
    for _, r in ipairs(records) do
      for _, id in ipairs(needing(r)) do
        others[#others + 1] = id
      end
    end
    load_new(others)
  end

  -- Those of them that wait.
  local function waiting_for(r)
    local ids, found = needing(r), {}
    load_new(ids)
    for _, id in ipairs(ids) do
      local d = jobs[id]
      if d and d[STATE] == 'w' and d[FLOW] == r[FLOW] then
        found[#found + 1] = id
      end
    end
    return found
  end

  local function release(r, id)
    local waiting = waiting_for(r)
    if #waiting == 0 then
      return
    end
    local input = r[STEP] .. '\0' .. (made.results[id] or 'null') .. '\0'
    for _, other in ipairs(waiting) do
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

  -- Cancel a step because of what happened to another. Answers how many have ended by it.
  local function drag(r, id)
    if made.reached then
      made.reached(r, id)
    end
    r[CANCEL] = 1
    if r[STATE] == 'r' then
      ask(r)
      save(id)
      return 0
    end
    leave(r, id)
    r[OUTCOME] = ''
    finish(r, id, 'c', true)
    return 1
  end

  local function stop(flow)
    local ids, ended = call('HVALS', base .. 's:' .. flow), 0
    states_of(ids, true)
    for _, id in ipairs(ids) do
      if unfinished(jobs[id]) then
        ended = ended + drag(jobs[id], id)
      end
    end
    return ended
  end

  -- Cancel all that wait for this step, for those that wait for it, and so on.
  local function abandon(first)
    local ended, at = { first }, 1
    while ended[at] do
      for _, id in ipairs(waiting_for(ended[at])) do
        drag(jobs[id], id)
        ended[#ended + 1] = jobs[id]
      end
      at = at + 1
    end
    return #ended - 1
  end

  -- What a step that failed or was cancelled does to the others. Answers how many have ended by it.
  local function spread(flow, key, r)
    local known = call('HMGET', key, 'state', 'on_failure')
    if known[2] == 'c' then
      return abandon(r)
    elseif known[1] == 'r' then
      call('HSET', key, 'state', r[STATE])
      return stop(flow)
    end
    return 0
  end

  local function end_flow(flow, key)
    call('HSET', key, 'finished', now_text)
    if call('HGET', key, 'state') == 'r' then
      local counts = tally(flow)
      call('HSET', key, 'state', counts.f > 0 and 'f' or counts.c > 0 and 'c' or 's')
    end
  end

  local function ended(r, id)
    local flow = r[FLOW]
    local key = base .. 'g:' .. flow
    local open = call('HINCRBY', key, 'open', -1)
    if r[STATE] == 's' then
      release(r, id)
    else
      local more = spread(flow, key, r)
      if more > 0 then
        open = call('HINCRBY', key, 'open', -more)
      end
    end
    if open == 0 then
      end_flow(flow, key)
    end
  end

  -- results: id to result, of steps that succeed in this script. reached: told of a step, before it is cancelled
  -- because of another.
  made = { ended = ended, expect = expect, forget = forget, later = later, unfinished = unfinished }
  made.states_of, made.tally = states_of, tally
  made.results, made.reached = {}, nil
  return made
end
