-- settle: record how claims ended, each fenced by job, epoch, worker and an unexpired lease.
--
-- ARGV[1]  cmsgpack list of settlements: id, epoch, worker, kind, text (the result, or the error), traceback,
--          delay in microseconds; for a success that adds steps also: the steps, see bring.lua, and the name that
--          they need and that is none of them, or ''. kind: s succeeded, f failed, c cancelled, r retry, l released,
--          z snoozed
-- answers  a letter for each: a accepted, l lost

local function end_attempt(r, id, kind, text, traceback, delay)
  if kind == 'r' or kind == 'f' then
    blame(r, id, text, traceback)
  end
  leave(r, id)
  if kind == 's' then
    if text ~= '' then
      put(base .. 'r:' .. id, text)
      if r[FLOW] ~= '' then
        steps().results[id] = text
      end
    end
    finish(r, id, 's')
  elseif kind == 'f' or kind == 'c' then
    finish(r, id, kind)
  elseif r[CANCEL] == 1 then
    finish(r, id, 'c')
  elseif kind == 'r' then
    if r[ATTEMPTS] >= r[MAX] then
      finish(r, id, 'f')
    else
      put_back(r, id, stamp(now + delay))
    end
  else
    r[ATTEMPTS] = r[ATTEMPTS] - 1
    put_back(r, id, kind == 'z' and stamp(now + delay) or r[RUN_AT])
  end
end

-- A success that adds steps, or fails because they cannot be added.
local function add_steps(job, job_id, result, added, need)
  local bring, name_steps, known_job = make_bring()
  local CANNOT = 'the steps cannot be added: '

  -- Why these steps cannot be added, or nil. The words are those of limits.
  local function wrong(r, new, adder)
    if r[FLOW] == '' then
      return CANNOT .. 'this job is no step of a flow'
    end
    for _, step in ipairs(new) do
      if call('HEXISTS', base .. 's:' .. r[FLOW], step[8]) == 1 then
        return CANNOT .. 'the flow has a step "' .. step[8] .. '" already'
      end
    end
    if adder ~= '' and adder ~= r[STEP] then
      return CANNOT .. '"' .. adder .. '" is needed and is neither one of them nor the step that adds them'
    end
    local known = known_job(new)
    if known then
      known = string.gsub(known, '^(........)(....)(....)(....)', '%1-%2-%3-%4-')
      return 'a step has the id ' .. known .. ' of a job that is there already: give it a new one'
    end
  end

  -- Succeed, and add steps to the flow before: then they are given the result like others, and the flow goes on.
  local function grow(r, id, text, new)
    local flow, mine = r[FLOW], {}
    local running = call('HGET', base .. 'g:' .. flow, 'state') == 'r'
    for _, step in ipairs(new) do
      -- A step of this name may have been deleted: those that need it wait for this one now.
      step[11] = (call('HGET', base .. 'd:' .. flow, step[8]) or '') .. step[11]
      bring(flow, step, not running and 'c' or step[10] > 0 and 'w' or 'q')
      if step[12] == 1 then
        mine[#mine + 1] = step[1]
      end
    end
    name_steps(flow)
    if #mine > 0 then
      local others = (call('HGET', base .. 'd:' .. flow, r[STEP]) or '') .. table.concat(mine)
      call('HSET', base .. 'd:' .. flow, r[STEP], others)
      steps().forget(r)
    end
    if running then
      call('HINCRBY', base .. 'g:' .. flow, 'open', #new)
    end
    end_attempt(r, id, 's', text)
  end

  local problem = wrong(job, added, need)
  if problem then
    end_attempt(job, job_id, 'f', problem, '')
  else
    grow(job, job_id, result, added)
  end
end

local items = unpack_record(ARGV[1])
local ids, answers, succeeding = {}, {}, nil
for i = 1, #items do
  ids[i] = items[i][1]
end
load(ids)
for i = 1, #items do
  local r = jobs[ids[i]]
  if r and r[FLOW] ~= '' and items[i][4] == 's' then
    succeeding = succeeding or {}
    succeeding[#succeeding + 1] = r
  end
end
if succeeding then
  steps().expect(succeeding)
end
needs_no_memory()
for i = 1, #items do
  local id, epoch, worker, kind, text, traceback, delay, new, adder = unpack(items[i])
  local r = jobs[id]
  local answer = 'l'
  if r then
    if held_by(r, worker, epoch) then
      r[OUTCOME] = kind
      if new then
        add_steps(r, id, text, new, adder)
      else
        end_attempt(r, id, kind, text, traceback, delay)
      end
      answer = 'a'
    elseif r[WORKER] == worker and r[EPOCH] == epoch and r[OUTCOME] == kind then
      answer = 'a'
    end
  end
  answers[i] = answer
end
flush()
return table.concat(answers)
