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
  local limits, uses, started = {}, {}, {}

  local function limit_of(field)
    if limits[field] == nil then
      local text = call('HGET', base .. 'limits', field)
      limits[field] = text and unpack_record(text) or false
    end
    return limits[field]
  end

  -- How far a limit is used, or false if there is none. running: how many hold a lease, when somebody asks.
  local function use(name, field, bucket, member, running)
    local found = uses[name]
    if found == nil then
      local limit = limit_of(field)
      found = limit and { bucket = bucket, member = member }
      if limit and limit[2] >= 0 then
        found.most, found.running = limit[2], running()
      end
      if limit and limit[3] > 0 then
        found.apart, found.owed = limit[5], (limit[3] - 1) * limit[5]
        found.full_at = tonumber(call('ZSCORE', bucket, member) or 0)
      end
      uses[name] = found
    end
    return found
  end

  local function of_queue()
    return use('q', 'q:' .. queue, base .. 'rates', 'q:' .. queue, function()
      return running_in(queue)
    end)
  end

  local function of_task(task)
    local name = 't:' .. task
    return use(name, name, base .. 'rates', name, function()
      return valid_in(base .. 'c:t:' .. task)
    end)
  end

  local function of_key(key)
    if not key or key == '' then
      return false
    end
    return use('k:' .. key, 'k:' .. queue, base .. 'rates:' .. queue, key, function()
      return valid_in(base .. 'c:k:' .. queue .. '\t' .. key)
    end)
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
    return room(of_queue()) and room(of_task(task)) and room(of_key(key))
  end

  function rooms.full_key(r)
    return not room(of_key(r[LIMIT_KEY]))
  end

  -- A job that may start does.
  function rooms.start(r)
    local task = of_task(r[TASK])
    start(of_queue())
    start(task)
    start(of_key(r[LIMIT_KEY]))
    if task then
      r[UNIQUE], r[EXPIRES], r[LIMIT_KEY], r[COUNTED] = r[UNIQUE] or '', r[EXPIRES] or '', r[LIMIT_KEY] or '', 1
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
    moved[id] = true
  end

  return rooms
end
