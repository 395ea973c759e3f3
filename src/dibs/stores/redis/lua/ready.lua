-- ready: which queues have due work. If none has, mark them: the next to bring work will call out.
--
-- ARGV[1]  worker, or '' for none
-- ARGV[2]... queues
-- answers  microseconds until another look is worth it, at most a second; when a claim of the worker was last asked to
--          end, or '0'; then the queues with due work

local SECOND = 1000000
local pause, answers = SECOND, { 0, '0' }

local function sooner(moment)
  pause = math.max(0, math.min(pause, moment - now))
end

-- True if a job of this lane is due; otherwise notes when the next will be.
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
  for _, lane in ipairs(call('SMEMBERS', base .. 't:' .. queue)) do
    if due(order_key(queue, lane)) then
      return true
    end
  end
  return false
end

for i = 2, #ARGV do
  if ready(ARGV[i]) then
    answers[#answers + 1] = ARGV[i]
  end
end
if #answers == 2 and #ARGV > 1 then
  needs_no_memory()
  call('SADD', base .. 'sleeping', unpack(ARGV, 2))
end
answers[1] = pause
if ARGV[1] ~= '' then
  answers[2] = call('ZSCORE', base .. 'asked', ARGV[1]) or '0'
end
return answers
