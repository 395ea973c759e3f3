-- The limit's claim on Redis. It knows nothing of pauses, lifo, tasks, keys and priorities with future jobs.
-- ARGV[1] worker, ARGV[2] limit, ARGV[3] lease in microseconds; answers id, record, body for each
local worker, lease = ARGV[1], tonumber(ARGV[3])
local expired = call('ZRANGEBYSCORE', base .. 'leases', '-inf', string.format('%.0f', now), 'LIMIT', 0, 1000)
if #expired > 0 then
  local order = {}
  for i, text in ipairs(get('j:', expired)) do
    order[2 * i - 1], order[2 * i] = 0, unpack_record(text)[8]
  end
  send('ZREM', base .. 'leases', expired)
  send('ZADD', base .. 'order', order)
end

local now_text = string.format('%018.0f', now)
local ids, places = {}, {}
for _, place in ipairs(call('ZRANGEBYLEX', base .. 'order', '-', '+', 'LIMIT', 0, ARGV[2])) do
  if string.sub(place, 6, 23) <= now_text then
    places[#places + 1] = place
    ids[#ids + 1] = string.sub(place, 24)
  end
end
local records, sets, leases, answers = get('j:', ids), {}, {}, {}
for i, id in ipairs(ids) do
  local r = unpack_record(records[i])
  r[1], r[2], r[3], r[4], r[5], r[6] = 'r', r[2] + 1, r[3] + 1, worker, now + lease, now
  local text = pack(r)
  sets[2 * i - 1], sets[2 * i] = base .. 'j:' .. id, text
  leases[2 * i - 1], leases[2 * i] = r[5], id
  answers[3 * i - 2], answers[3 * i - 1] = id, text
end
set(sets)
send('ZREM', base .. 'order', places)
send('ZADD', base .. 'leases', leases)
for i, body in ipairs(get('b:', ids)) do
  answers[3 * i] = body
end
return answers
