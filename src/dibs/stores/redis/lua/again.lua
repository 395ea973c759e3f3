-- Part of requeue: a flow of which steps begin again. All of its steps are looked at.

local later, unfinished, states_of = steps().later, steps().unfinished, steps().states_of

-- The needs of a flow: from the name of a step, and the id of one that needs it, to its own id.
local function links_of(flow, by_name)
  local links, found = call('HGETALL', base .. 'd:' .. flow), {}
  for i = 1, #links, 2 do
    local name, text, needed_by = links[i], links[i + 1], {}
    for at = 1, #text, 32 do
      needed_by[sub(text, at, at + 31)] = by_name[name]
    end
    found[name] = needed_by
  end
  return found
end

-- What a step has to wait for: how many needs are not met, and what the others give, as in i:. A need that is gone is
-- met, also if a step has its name that came later: that one is not linked to this.
local function weigh(step, needs, links, states, found)
  local unmet, given = 0, {}
  for name in string.gmatch(needs, '[^%z]+') do
    local id = links[name] and links[name][step]
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
  local states, found, links = states_of(ids, true), {}, links_of(flow, by_name)
  for _, id in ipairs(ids) do
    local r, new = jobs[id], restarted[id]
    if new or unfinished(r) then
      open = open + 1
      if r[STATE] ~= 'r' then
        local needs = call('GET', base .. 'n:' .. id)
        local unmet, given = 0, ''
        if needs then
          unmet, given = weigh(id, needs, links, states, found)
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
