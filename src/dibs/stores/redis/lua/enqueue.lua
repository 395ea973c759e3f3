-- enqueue: store jobs, all or nothing.
--
-- ARGV[1]  cmsgpack list of jobs: id, priority (5 digits), run_at (18 digits, or '' for now), queue, task,
--          key or '', body; and of one that is not plain also: microseconds to be unique for or 0, expires_at or '',
--          limit key or '', and what to do if the key is busy: '' nothing, r replace, d debounce; the longest delay
--          in microseconds, or 0; max_attempts
-- ARGV[2]  the version of the layout
-- ARGV[3]... for each job its record, without what follows the needs
-- answers  for those that were there already: position, id, position, id...; position below 0: it was changed
--
-- The first write of this script is one that the server refuses when memory is full: nothing is half-stored.

local batch = unpack_record(ARGV[1])
local answers, known = {}, {}

local keys = {}
for i = 1, #batch do
  keys[i] = base .. 'j:' .. batch[i][1]
end
for from = 1, #keys, CHUNK do
  local upto = math.min(from + CHUNK - 1, #keys)
  if call('EXISTS', unpack(keys, from, upto)) > 0 then
    for i = from, upto do
      known[keys[i]] = call('EXISTS', keys[i]) == 1
    end
  end
end

local windows = {} -- queue to whether it has finished jobs whose keys are busy

-- The finished job because of which a key is busy, the newest if there are several; nil if none is.
local function unique(queue, key)
  local there, newest = call('HGET', base .. 'u:' .. queue, key) or '', nil
  for at = 1, #there, 50 do
    local id = sub(there, at, at + 31)
    if sub(there, at + 32, at + 49) > now_text and (not newest or id > newest) then
      newest = id
    end
  end
  return newest
end

-- Take the key for a new job. Answers the job that has it already, or nil.
local function take_key(queue, key, id)
  local held = base .. 'k:' .. queue
  if windows[queue] == nil then
    windows[queue] = call('EXISTS', base .. 'u:' .. queue) == 1
  end
  local holder = windows[queue] and (call('HGET', held, key) or unique(queue, key))
  if not holder and call('HSETNX', held, key, id) == 0 then
    holder = call('HGET', held, key)
  end
  return holder
end

local new_queues, ids = {}, base .. 'ids'
for i = 1, #batch do
  local id, priority, run_at, queue, task, key, body, unique_for, expires, limit_key, conflict = unpack(batch[i])
  local record = keys[i]
  local there = known[record] and id
  local position = i
  if not there and key ~= '' then
    there = take_key(queue, key, id)
    if there and conflict and conflict ~= '' and replace(there, batch[i], known[base .. 'j:' .. there]) then
      position = -i
    end
  end
  if there then
    answers[#answers + 1] = position
    answers[#answers + 1] = there
  else
    known[record] = true
    if run_at == '' then
      run_at = now_text
    end
    -- \178 begins a string of 18 bytes
    local text = ARGV[i + 2] .. '\178' .. run_at .. '\178' .. now_text
    if unique_for then
      text = text .. pack(unique_for > 0 and stamp(now + unique_for) or '', expires, limit_key, 0)
      if expires ~= '' then
        add(index_key('y', queue), expires, id)
      end
    end
    put(record, text)
    put(base .. 'b:' .. id, body)
    add(ids, 0, id)
    stand(queue, task, priority .. run_at .. id)
    new_queues[queue] = true
  end
end
flush()
for queue in pairs(new_queues) do
  if call('SADD', base .. 'queues', queue) == 1 then
    call('SET', base .. 'layout', ARGV[2], 'NX')
  end
end
return answers
