-- Shared by flow and flows: all that is known about a flow.

-- Behind the answers: id, record, meta or '', how many steps are waiting, queued, running, succeeded, failed,
-- cancelled.
local function tell(answers, flow, record)
  local n, counts = #answers, tally(flow)
  answers[n + 1], answers[n + 2] = flow, record
  answers[n + 3] = call('GET', base .. 'm:' .. flow) or ''
  for i, state in ipairs({ 'w', 'q', 'r', 's', 'f', 'c' }) do
    answers[n + 3 + i] = counts[state]
  end
end
