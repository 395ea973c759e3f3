-- ready: which queues have due work. If none has, mark them: the next to bring work will call out.
--
-- ARGV     queues
-- answers  microseconds until another look is worth it, at most a second; then the queues with due work

local SECOND = 1000000
local pause, answers = SECOND, { 0 }

local function sooner(moment)
  pause = math.max(0, math.min(pause, moment - now))
end

-- True if a job of this task is due; otherwise notes when the next will be.
local function due(key)
  local head = call('ZRANGEBYLEX', key, '-', '+', 'LIMIT', 0, 1)[1]
  while head do
    local run_at = sub(head, 6, 23)
    if run_at <= now_text then
      return true
    end
    sooner(tonumber(run_at))
    head = call('ZRANGEBYLEX', key, '(' .. sub(head, 1, 5) .. '\255', '+', 'LIMIT', 0, 1)[1]
  end
  return false
end

local function ready(queue)
  local settings = call('HGET', base .. 'settings', queue) or ''
  if string.find(settings, 'p', 1, true) then
    return false
  end
  for _, part in ipairs({ 'x:', 'l:' }) do
    local lease = call('ZRANGE', base .. part .. queue, 0, 0, 'WITHSCORES')[2]
    if lease then
      if tonumber(lease) <= now then
        return true
      end
      sooner(tonumber(lease))
    end
  end
  for _, task in ipairs(call('SMEMBERS', base .. 't:' .. queue)) do
    if due(order_key(queue, task)) then
      return true
    end
  end
  return false
end

for _, queue in ipairs(ARGV) do
  if ready(queue) then
    answers[#answers + 1] = queue
  end
end
if #answers == 1 and #ARGV > 0 then
  needs_no_memory()
  call('SADD', base .. 'sleeping', unpack(ARGV))
end
answers[1] = pause
return answers
