-- Shared by flow and flows: all that is known about a flow.

local tally = steps().tally
local FIELDS = { 'state', 'on_failure', 'created', 'finished', 'name', 'meta' }

-- Behind the answers: id, these fields or '', how many steps are waiting, queued, running, succeeded, failed,
-- cancelled.
local function tell(answers, flow)
  local n, counts = #answers, tally(flow)
  answers[n + 1] = flow
  for i, value in ipairs(call('HMGET', base .. 'g:' .. flow, unpack(FIELDS))) do
    answers[n + 1 + i] = value or ''
  end
  for i, state in ipairs({ 'w', 'q', 'r', 's', 'f', 'c' }) do
    answers[n + 7 + i] = counts[state]
  end
end
