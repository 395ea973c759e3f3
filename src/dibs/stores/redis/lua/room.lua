-- Shared by the verbs that take jobs, or tell of limits: how much room there is.
--
-- A limit is an array: rank; concurrency, or -1; of its rate, or 0: count, per, apart in microseconds. One of rank -1
-- limits nothing: it is there while the jobs are counted that were running before, see fill.lua.
--
-- Of each bucket its full_at is kept: see dibs.limits.rates.

local function valid_in(key)
  return call('ZCOUNT', key, '(' .. now_text, '+inf')
end

local function running_in(queue)
  return valid_in(base .. 'l:' .. queue) + valid_in(base .. 'x:' .. queue)
end

-- Made only where there are limits.
local function make_rooms(queue)
  local tasks, keys, started = {}, {}, {}

  local function limit_of(field)
    local text = call('HGET', base .. 'limits', field)
    return text and unpack_record(text)
  end

  -- How far a limit is used. running: a function that tells how many hold a lease there.
  local function use(limit, bucket, member, running, where)
    local one = { bucket = bucket, member = member }
    if limit[2] >= 0 then
      one.most, one.running = limit[2], running(where)
    end
    if limit[3] > 0 then
      one.apart, one.owed = limit[5], (limit[3] - 1) * limit[5]
      one.full_at = tonumber(call('ZSCORE', bucket, member) or 0)
    end
    return one
  end

  local own, each = limit_of('q:' .. queue), limit_of('k:' .. queue)
  local of_queue = own and use(own, base .. 'rates', 'q:' .. queue, running_in, queue)

  -- These answer false where there is no limit.
  local function of_task(task)
    local one = tasks[task]
    if one == nil then
      local limit = limit_of('t:' .. task)
      one = limit and use(limit, base .. 'rates', 't:' .. task, valid_in, base .. 'c:t:' .. task)
      tasks[task] = one
    end
    return one
  end

  local function of_key(key)
    if not each or not key or key == '' then
      return false
    end
    local one = keys[key]
    if not one then
      local counted = index_key('c:k', queue .. '\t' .. key)
      one = use(each, base .. 'rates:' .. queue, key, valid_in, counted)
      keys[key] = one
    end
    return one
  end

  local function room(one)
    return not one
      or (not one.most or one.running < one.most) and (not one.apart or one.full_at - now <= one.owed)
  end

  local function start(one)
    if one and one.most then
      one.running = one.running + 1
    end
    if one and one.apart then
      one.full_at = math.max(one.full_at, now) + one.apart
      started[one] = true
    end
  end

  local rooms = {}

  -- True if jobs of this task, and of this limit key or of none, may start.
  function rooms.open(task, key)
    return room(of_queue) and room(of_task(task)) and room(of_key(key))
  end

  function rooms.full_key(r)
    return not room(of_key(r[LIMIT_KEY]))
  end

  -- A job that may start does.
  function rooms.start(r)
    local task = of_task(r[TASK])
    start(of_queue)
    start(task)
    start(of_key(r[LIMIT_KEY]))
    if task then
      r[UNIQUE], r[EXPIRES], r[LIMIT_KEY], r[MARK] = r[UNIQUE] or '', r[EXPIRES] or '', r[LIMIT_KEY] or '', 1
    end
  end

  -- Behind the last of them. Some buckets of keys that are full again are forgotten.
  function rooms.close()
    for one in pairs(started) do
      add(one.bucket, one.full_at, one.member)
    end
    local buckets = base .. 'rates:' .. queue
    for _, member in ipairs(call('ZRANGEBYSCORE', buckets, '-inf', now_text, 'LIMIT', 0, 1000)) do
      drop(buckets, member)
    end
  end

  -- A queued job that the limit of its key holds back stands aside: a claim passes all of them at once then.
  function rooms.set_aside(r, id)
    local lane = r[TASK] .. '\t' .. r[LIMIT_KEY]
    local key = order_key(queue, lane)
    drop(order_key(queue, r[TASK]), place(r, id))
    add(key, 0, place(r, id))
    lanes[key] = { queue, lane }
    r[MARK] = 2
    save(id)
    moved[id] = true
  end

  return rooms
end
