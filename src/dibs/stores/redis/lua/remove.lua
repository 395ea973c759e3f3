-- Shared by delete and prune: a job goes, and with the last step of a flow the flow.

local PARTS, STEP_PARTS = { 'j:', 'b:', 'r:', 'e:', 'p:' }, { 'n:', 'i:' }
local gone = {}
local parted = {} -- flow to the steps that went from it: id to name. Only of flows that have others

-- r may be missing if the job is certainly no step. Comes behind leave().
local function remove(r, id)
  drop(base .. 'ids', id)
  for _, part in ipairs(PARTS) do
    gone[#gone + 1] = base .. part .. id
  end
  jobs[id], changed[id] = false, nil
  if not r or r[FLOW] == '' then
    return
  end
  for _, part in ipairs(STEP_PARTS) do
    gone[#gone + 1] = base .. part .. id
  end
  local flow = r[FLOW]
  call('HDEL', base .. 's:' .. flow, r[STEP])
  if call('EXISTS', base .. 's:' .. flow) == 0 then
    gone[#gone + 1] = base .. 'g:' .. flow
    gone[#gone + 1] = base .. 'd:' .. flow
    drop(base .. 'flows', flow)
    parted[flow] = nil
  else
    parted[flow] = parted[flow] or {}
    parted[flow][id] = r[STEP]
  end
end

-- Those of the ids in a text that are not among the steps that went.
local function without(text, went)
  local kept = {}
  for at = 1, #text, 32 do
    local id = sub(text, at, at + 31)
    if not went[id] then
      kept[#kept + 1] = id
    end
  end
  return table.concat(kept)
end

-- Nobody needs a step that went, nor does it need others: a later one of its name, or of its id, is another.
local function part(flow, went)
  local links, needed = base .. 'd:' .. flow, {}
  for id, name in pairs(went) do
    call('HDEL', links, name)
    for need in string.gmatch(call('GET', base .. 'n:' .. id) or '', '[^%z]+') do
      needed[need] = true
    end
  end
  for name in pairs(needed) do
    local text = call('HGET', links, name)
    local kept = text and without(text, went)
    if kept == '' then
      call('HDEL', links, name)
    elseif kept and #kept < #text then
      call('HSET', links, name, kept)
    end
  end
end

-- Once for all that were removed: of a thousand that need the same step, each would read and write the whole list.
local function unlink()
  for flow, went in pairs(parted) do
    part(flow, went)
  end
  for from = 1, #gone, CHUNK do
    call('UNLINK', unpack(gone, from, math.min(from + CHUNK - 1, #gone)))
  end
end
