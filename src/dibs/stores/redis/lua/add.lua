-- Part of a settle that adds steps to a flow. One that does not is made without it.

-- A success that adds steps, or fails because they cannot be added.
add_steps = function(end_attempt, job, job_id, result, added, need)
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

  -- A step that was to be cancelled passes that on to those that it has added, with all that follows.
  local function cancel(new)
    for _, step in ipairs(new) do
      local id = step[1]
      local r = jobs[id]
      if steps().unfinished(r) then
        r[CANCEL] = 1
        leave(r, id)
        finish(r, id, 'c')
      end
    end
  end

  -- Succeed, and add steps to the flow before: then they are given the result like others, and the flow goes on.
  local function grow(r, id, text, new)
    local flow, mine = r[FLOW], {}
    local running = call('HGET', base .. 'g:' .. flow, 'state') == 'r'
    for _, step in ipairs(new) do
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
    if running and r[CANCEL] == 1 then
      cancel(new)
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
