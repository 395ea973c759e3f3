-- Part of an enqueue that may change jobs that are there. One that may not is made without it.

-- When a job is due that was asked for again.
local function put_off(r, run_at, max_delay)
  if max_delay > 0 then
    local latest = stamp(tonumber(r[CREATED]) + max_delay)
    run_at = run_at < latest and run_at or latest
  end
  return r[RUN_AT] > run_at and r[RUN_AT] or run_at
end

-- Make a queued job what was asked for now. False if it is not queued. fresh: it may have come with this very call.
replace = function(id, new, fresh)
  local _, priority, run_at, _, task, _, body, unique_for, expires, limit_key, conflict, max_delay, most = unpack(new)
  if not jobs[id] then
    if fresh then
      flush_early()
    end
    load({ id })
  end
  local r = jobs[id]
  if r[STATE] ~= 'q' then
    return false
  end
  if run_at == '' then
    run_at = now_text
  end
  if conflict == 'd' then
    run_at = put_off(r, run_at, max_delay)
  end
  leave(r, id)
  r[PRIORITY], r[TASK], r[MAX], r[ATTEMPTS], r[OUTCOME] = priority, task, most, 0, ''
  r[UNIQUE] = unique_for > 0 and stamp(tonumber(r[CREATED]) + unique_for) or ''
  r[EXPIRES], r[LIMIT_KEY], r[MARK] = expires, limit_key, 0
  put(base .. 'b:' .. id, body)
  put_back(r, id, run_at)
  moved[id] = true
  return true
end
