-- Shared by the verbs that change jobs: what happens besides to those that are not plain.
--
-- A server makes the functions of a script anew in each call. So these are made when the first such job is met.

local made_more

more = function()
  if made_more then
    return made_more
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
  local function leave(r, id)
    local state = r[STATE]
    if state == 'q' then
      if r[EXPIRES] ~= '' then
        drop(index_key('y', r[QUEUE]), id)
      end
      if r[MARK] == 2 then
        drop(order_key(r[QUEUE], r[TASK] .. '\t' .. r[LIMIT_KEY]), place(r, id))
        r[MARK] = 0
      end
    elseif state == 'r' then
      if r[LIMIT_KEY] ~= '' then
        drop(index_key('c:k', r[QUEUE] .. '\t' .. r[LIMIT_KEY]), id)
      end
      if r[MARK] == 1 then
        drop(index_key('c:t', r[TASK]), id)
        r[MARK] = 0
      end
    elseif r[UNIQUE] ~= '' and state ~= 'w' then
      close_window(r, id)
    end
  end

  made_more = { leave = leave, open_window = open_window, close_window = close_window }
  return made_more
end
