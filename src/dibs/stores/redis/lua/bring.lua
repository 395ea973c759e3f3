-- Shared by start and settle: new steps.
--
-- A step is a list: id, priority (5 digits), run_at (18 digits, or '' for now), queue, task, max_attempts, body,
-- name, needs (names, a NUL behind each), how many they are, dependents (ids, one behind the other), 1 if it needs
-- the step that adds it, else 0; and of one that is not plain also: expires_at or '', limit key or ''

local function make_bring()
  local names, links, queues = {}, {}, {}

  -- state: w or q, or c in a flow that was stopped.
  local function bring(flow, step, state)
    local id, priority, run_at, queue, task, most, body, name, needs, unmet, others, _, expires, limit_key = unpack(step)
    if run_at == '' then
      run_at = now_text
    end
    local r = { state, 0, 0, '', 0, 0, 0, 0, '', priority, most, queue, task, '', flow, name, unmet, run_at, now_text }
    if expires then
      r[UNIQUE], r[EXPIRES], r[LIMIT_KEY], r[MARK] = '', expires, limit_key, 0
    end
    jobs[id], moved[id] = r, true
    put(base .. 'b:' .. id, body)
    if needs ~= '' then
      put(base .. 'n:' .. id, needs)
    end
    if others ~= '' then
      links[#links + 1] = name
      links[#links + 1] = others
    end
    add(base .. 'ids', 0, id)
    local n = #names
    names[n + 1], names[n + 2] = name, id
    queues[queue] = true
    if state == 'q' then
      stand(queue, task, place(r, id))
      if expires and expires ~= '' then
        add(index_key('y', queue), expires, id)
      end
    elseif state == 'w' then
      add(index_key('w', queue), 0, id)
    else
      r[CANCEL], r[FINISHED] = 1, now
      add(index_key('f:c', queue), now, id)
      add(base .. 'z:c', 0, id)
    end
    save(id)
  end

  -- Behind all of them, when nothing can be refused any more.
  local function name_steps(flow)
    send('HSET', base .. 's:' .. flow, names)
    send('HSET', base .. 'd:' .. flow, links)
    for queue in pairs(queues) do
      call('SADD', base .. 'queues', queue)
    end
    names, links, queues = {}, {}, {}
  end

  -- The first of the steps whose job is there already, or nil.
  local function known_job(steps)
    for from = 1, #steps, CHUNK do
      local upto = math.min(from + CHUNK - 1, #steps)
      local keys = {}
      for i = from, upto do
        local id = steps[i][1]
        if jobs[id] then
          return id
        end
        keys[#keys + 1] = base .. 'j:' .. id
      end
      if call('EXISTS', unpack(keys)) > 0 then
        for i = from, upto do
          if call('EXISTS', base .. 'j:' .. steps[i][1]) == 1 then
            return steps[i][1]
          end
        end
      end
    end
  end

  return bring, name_steps, known_job
end
