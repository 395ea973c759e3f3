-- enqueue: store jobs, all or nothing.
--
-- ARGV[1]  cmsgpack list of jobs: id, priority (5 digits), run_at (18 digits, or '' for now), queue, task,
--          key or '', body
-- ARGV[2]  the version of the layout
-- ARGV[3]... for each job its record, without the last two elements
-- answers  for those that were there already: position, id, position, id...
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

local new_queues, ids = {}, base .. 'ids'
for i = 1, #batch do
  local id, priority, run_at, queue, task, key, body = unpack(batch[i])
  local record = keys[i]
  local there = known[record] and id
  if not there and key ~= '' and call('HSETNX', base .. 'k:' .. queue, key, id) == 0 then
    there = call('HGET', base .. 'k:' .. queue, key)
  end
  if there then
    answers[#answers + 1] = i
    answers[#answers + 1] = there
  else
    known[record] = true
    if run_at == '' then
      run_at = now_text
    end
    -- \178 begins a string of 18 bytes
    put(record, ARGV[i + 2] .. '\178' .. run_at .. '\178' .. now_text)
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
