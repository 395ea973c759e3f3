-- keep: values that are no jobs, by name.
--
-- ARGV[1]  kind
-- ARGV[2]  rank, in 16 digits
-- ARGV[3]  the version of the layout
-- ARGV[4]  name, and so on in turns with
-- ARGV[5]  its value, or '' to forget it
-- answers  nothing

local kept, rank = base .. 'kept:' .. ARGV[1], ARGV[2]
for i = 4, #ARGV, 2 do
  local name, value = ARGV[i], ARGV[i + 1]
  if value == '' then
    call('HDEL', kept, name)
  else
    local there = call('HGET', kept, name)
    if not there or sub(there, 1, 16) <= rank then
      call('HSET', kept, name, rank .. value)
    end
  end
end
call('SET', base .. 'layout', ARGV[3], 'NX')
return 1
