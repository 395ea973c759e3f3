-- Shared by the verbs that change jobs: what happens to one.

-- Where a running job that is not plain is counted for limits.
local function count_in(r, id)
  if r[LIMIT_KEY] ~= '' then
    add(base .. 'c:k:' .. r[QUEUE] .. '\t' .. r[LIMIT_KEY], r[LOCKED], id)
  end
  if r[COUNTED] == 1 then
    add(index_key('c:t', r[TASK]), r[LOCKED], id)
  end
end

-- A finished job whose key stays busy; the windows of others that have passed are forgotten.
local function open_window(r, id)
  local windows, kept = base .. 'u:' .. r[QUEUE], { id, r[UNIQUE] }
  local there = call('HGET', windows, r[KEY]) or ''
  for at = 1, #there, 50 do
    if sub(there, at + 32, at + 49) > now_text then
      kept[#kept + 1] = sub(there, at, at + 49)
    end
  end
  call('HSET', windows, r[KEY], table.concat(kept))
end

local function close_window(r, id)
  local windows, kept = base .. 'u:' .. r[QUEUE], {}
  local there = call('HGET', windows, r[KEY]) or ''
  for at = 1, #there, 50 do
    if sub(there, at, at + 31) ~= id then
      kept[#kept + 1] = sub(there, at, at + 49)
    end
  end
  if #kept > 0 then
    call('HSET', windows, r[KEY], table.concat(kept))
  elseif there ~= '' then
    call('HDEL', windows, r[KEY])
  end
end

-- What leave() does besides for a job that is not plain.
local function leave_more(r, id)
  local state = r[STATE]
  if state == 'q' then
    drop(index_key('y', r[QUEUE]), id)
    if r[LIMIT_KEY] ~= '' then
      drop(order_key(r[QUEUE], r[TASK] .. '\t' .. r[LIMIT_KEY]), place(r, id))
    end
  elseif state == 'r' then
    if r[LIMIT_KEY] ~= '' then
      drop(base .. 'c:k:' .. r[QUEUE] .. '\t' .. r[LIMIT_KEY], id)
    end
    if r[COUNTED] == 1 then
      drop(index_key('c:t', r[TASK]), id)
      r[COUNTED] = 0
    end
  elseif r[UNIQUE] ~= '' and state ~= 'w' then
    close_window(r, id)
  end
end

-- Take the job out of the index that its state put it in.
local function leave(r, id)
  local state, queue = r[STATE], r[QUEUE]
  if moved[id] then
    flush_early()
  end
  if r[UNIQUE] then
    leave_more(r, id)
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
  free_key(r, id)
  if r[UNIQUE] and r[UNIQUE] ~= '' and r[UNIQUE] > now_text then
    open_window(r, id)
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

-- Its time to start has passed.
local function expired(r)
  local expires = r[EXPIRES]
  return expires and expires ~= '' and expires <= now_text
end

-- How a job ends that is queued or whose lease expired and that is not to be started; nil if it may be.
local function end_of(r)
  if r[STATE] == 'r' then
    if r[CANCEL] == 1 then
      return 'c'
    elseif r[ATTEMPTS] >= r[MAX] then
      return 'f'
    end
  end
  return expired(r) and 'c' or nil
end

-- Close the books on the attempt, if there was one: behind it the job is to be taken, put back or finished.
local function close_books(r, id)
  leave(r, id)
  if r[STATE] == 'r' then
    blame(r, id, 'lease expired', '')
  end
end

-- Do the first of these, if it has come to that. False if the job may be started.
local function is_over(r, id)
  local state = end_of(r)
  if not state then
    return false
  end
  close_books(r, id)
  r[OUTCOME] = ''
  finish(r, id, state)
  return true
end
