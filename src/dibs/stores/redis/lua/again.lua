-- Part of requeue: a flow of which steps begin again. All of its steps are looked at.

local later, unfinished, states_of = steps().later, steps().unfinished, steps().states_of

-- What a step has to wait for: how many needs are not met, and what the others give, as in i:.
local function weigh(needs, by_name, states, found)
  local unmet, given = 0, {}
  for name in string.gmatch(needs, '[^%z]+') do
    local id = by_name[name]
    local state = id and states[id]
    if state and state ~= 's' then
      unmet = unmet + 1
    else
      if id and found[id] == nil then
        found[id] = call('GET', base .. 'r:' .. id) or 'null'
      end
      given[#given + 1] = name .. '\0' .. (id and found[id] or 'null') .. '\0'
    end
  end
  return unmet, table.concat(given)
end

-- Put a step that has not started where it belongs.
local function arrange(r, id, unmet, new)
  if unmet > 0 and r[STATE] ~= 'w' then
    if not new then
      leave(r, id)
    end
    r[STATE] = 'w'
    add(index_key('w', r[QUEUE]), 0, id)
  elseif unmet == 0 and r[STATE] ~= 'q' then
    if not new then
      leave(r, id)
    end
    put_back(r, id, later(r[RUN_AT]))
  end
  r[NEEDS] = unmet
  save(id) -- also if nothing changed: who claims by WATCH looks at the record alone
end

-- restarted: set of steps that are in no index.
local function begin_again(flow, restarted)
  local open, by_name, ids = 0, {}, {}
  local steps = call('HGETALL', base .. 's:' .. flow)
  for i = 1, #steps, 2 do
    by_name[steps[i]] = steps[i + 1]
    ids[#ids + 1] = steps[i + 1]
  end
  local states, found = states_of(ids, true), {}
  for _, id in ipairs(ids) do
    local r, new = jobs[id], restarted[id]
    if new or unfinished(r) then
      open = open + 1
      if r[STATE] ~= 'r' then
        local needs = call('GET', base .. 'n:' .. id)
        local unmet, given = 0, ''
        if needs then
          unmet, given = weigh(needs, by_name, states, found)
        end
        if given ~= '' then
          put(base .. 'i:' .. id, given)
        elseif needs then
          gone[#gone + 1] = base .. 'i:' .. id
        end
        arrange(r, id, unmet, new)
      end
    end
  end
  call('HSET', base .. 'g:' .. flow, 'state', 'r', 'finished', '', 'open', open)
end
