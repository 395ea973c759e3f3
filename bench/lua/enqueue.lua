-- ARGV[1] queue, ARGV[2] task, then for each job: id, arguments
local sets, order = {}, {}
for i = 3, #ARGV, 2 do
  local id = ARGV[i]
  local place = '32768' .. string.format('%018.0f', now) .. id
  sets[#sets + 1] = base .. 'j:' .. id
  sets[#sets + 1] = pack({ 'q', 0, 0, '', 0, 0, 0, place, 5, ARGV[1], ARGV[2], now })
  sets[#sets + 1] = base .. 'b:' .. id
  sets[#sets + 1] = ARGV[i + 1]
  order[#order + 1] = 0
  order[#order + 1] = place
end
set(sets)
send('ZADD', base .. 'order', order)
return 1
