-- Shared by the verbs that change jobs: what happens to one.

-- What is taken away goes out before what is added, so a second move of a job must not join the first.
local function flush_early()
  flush()
  sets, changed, moved, asked = { n = 0 }, {}, {}, nil
  drops, adds, lanes, held, woken = {}, {}, {}, {}, {}
end

-- Take the job out of the index that its state put it in.
local function leave(r, id)
  local state, queue = r[STATE], r[QUEUE]
  if moved[id] then
    flush_early()
  end
  if r[UNIQUE] then
    more().leave(r, id)
  end
  if state == 'q' then
    drop(order_key(queue, r[TASK]), place(r, id))
  elseif state == 'r' then
    local lease = lease_of(r, id)
    drop(index_key('l', queue), lease)
    drop(index_key('x', queue), lease)
    hold(r[WORKER], -1)
  elseif state == 'w' then
    drop(index_key('w', queue), id)
  else
    drop(index_key('f:' .. state, queue), id)
    if state ~= 's' then
      drop(base .. 'z:' .. state, id)
    end
  end
end

local function free_key(r, id)
  local key = r[KEY]
  if key ~= '' and call('HGET', base .. 'k:' .. r[QUEUE], key) == id then
    call('HDEL', base .. 'k:' .. r[QUEUE], key)
  end
end

-- Both of these come behind leave(). alone: without what follows.
local function finish(r, id, state, alone)
  r[STATE], r[FINISHED], r[LOCKED] = state, now, 0
  add(index_key('f:' .. state, r[QUEUE]), now, id)
  if state ~= 's' then
    add(base .. 'z:' .. state, 0, id)
  end
  free_key(r, id)
  if r[UNIQUE] and r[UNIQUE] ~= '' and r[UNIQUE] > now_text then
    more().open_window(r, id)
  end
  save(id)
  if r[FLOW] ~= '' then
    moved[id] = true
    if not alone then
      steps().ended(r, id)
    end
  end
end

local function put_back(r, id, run_at)
  r[STATE], r[RUN_AT], r[LOCKED] = 'q', run_at, 0
  stand(r[QUEUE], r[TASK], place(r, id))
  if r[EXPIRES] and r[EXPIRES] ~= '' then
    add(index_key('y', r[QUEUE]), r[EXPIRES], id)
  end
  save(id)
  if r[FLOW] ~= '' then
    moved[id] = true
  end
end

local function blame(r, id, problem, traceback)
  local list = base .. 'e:' .. id
  call('RPUSH', list, pack({ r[ATTEMPTS], r[EPOCH], r[WORKER], r[STARTED], now, problem, traceback }))
  call('LTRIM', list, -10, -1)
end
