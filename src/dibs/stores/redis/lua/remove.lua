-- Shared by delete and prune: a job goes, and with the last step of a flow the flow.

local PARTS, STEP_PARTS = { 'j:', 'b:', 'r:', 'e:', 'p:' }, { 'n:', 'i:' }
local gone = {}

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
  end
end

local function unlink()
  for from = 1, #gone, CHUNK do
    call('UNLINK', unpack(gone, from, math.min(from + CHUNK - 1, #gone)))
  end
end
