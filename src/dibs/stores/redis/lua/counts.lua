-- counts: every queue with its jobs counted by state.
--
-- ARGV[1]  cmsgpack list of queues, or '' for all: those of a call before that stopped early
-- answers  cmsgpack list of queues not looked at; then for each queue: name, settings or '', waiting, queued,
--          running, succeeded, failed, cancelled, scheduled, the oldest due run_at or ''

local STEPS = 5000 -- (lane, priority) pairs looked at in one call, give or take a queue
local queues
if ARGV[1] ~= '' then
  queues = unpack_record(ARGV[1])
else
  queues = call('SUNION', base .. 'queues')
  local seen = {}
  for _, queue in ipairs(queues) do
    seen[queue] = true
  end
  for _, queue in ipairs(call('HKEYS', base .. 'settings')) do
    if queue ~= '' and not seen[queue] then
      queues[#queues + 1] = queue
    end
  end
end

local steps = 0

-- How many are queued, how many of them not due, and the oldest that is.
local function queued(queue)
  local total, scheduled, oldest = 0, 0, ''
  for _, lane in ipairs(call('SMEMBERS', base .. 't:' .. queue)) do
    local key = order_key(queue, lane)
    total = total + call('ZCARD', key)
    local head = call('ZRANGEBYLEX', key, '-', '+', 'LIMIT', 0, 1)[1]
    while head do
      steps = steps + 1
      local priority, run_at = sub(head, 1, 5), sub(head, 6, 23)
      if run_at <= now_text and (oldest == '' or run_at < oldest) then
        oldest = run_at
      end
      local behind = '(' .. priority .. '\255'
      scheduled = scheduled + call('ZLEXCOUNT', key, '(' .. priority .. now_text .. '\255', behind)
      head = call('ZRANGEBYLEX', key, behind, '+', 'LIMIT', 0, 1)[1]
    end
  end
  return total, scheduled, oldest
end

local answers, left = { '' }, {}
for _, queue in ipairs(queues) do
  if steps > STEPS then
    left[#left + 1] = queue
  else
    steps = steps + 1
    local total, scheduled, oldest = queued(queue)
    local running = call('ZCARD', base .. 'l:' .. queue) + call('ZCARD', base .. 'x:' .. queue)
    for _, value in ipairs({
      queue,
      call('HGET', base .. 'settings', queue) or '',
      call('ZCARD', base .. 'w:' .. queue),
      total,
      running,
      call('ZCARD', base .. 'f:s:' .. queue),
      call('ZCARD', base .. 'f:f:' .. queue),
      call('ZCARD', base .. 'f:c:' .. queue),
      scheduled,
      oldest,
    }) do
      answers[#answers + 1] = value
    end
  end
end
if #left > 0 then
  answers[1] = pack(left)
end
return answers
