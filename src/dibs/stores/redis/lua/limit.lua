-- limit: set what a scope is limited to, or take it away.
--
-- ARGV[1]  the scope, as in limits
-- ARGV[2]  rank, or '' to take the limit away
-- ARGV[3]  cmsgpack limit, see room.lua
-- ARGV[4]  1 if the running jobs of the task have been counted by now
-- ARGV[5]  the version of the layout
-- answers  1 if it is done; 0 if the running jobs of the task have to be counted first, see fill.lua

local scope, limits = ARGV[1], base .. 'limits'
local text = call('HGET', limits, scope)
local old = text and unpack_record(text)

local function fill_buckets()
  if sub(scope, 1, 1) == 'k' then
    call('UNLINK', base .. 'rates:' .. sub(scope, 3))
  else
    call('ZREM', base .. 'rates', scope)
  end
end

if ARGV[2] == '' then
  call('HDEL', limits, scope)
  fill_buckets()
  if call('EXISTS', limits) == 0 then
    call('HDEL', base .. 'settings', '')
  end
  return 1
end

call('HSET', base .. 'settings', '', '-')
call('SET', base .. 'layout', ARGV[5], 'NX')
local counted = old and (old[1] >= 0 or ARGV[4] == '1')
if sub(scope, 1, 1) == 't' and not counted then
  call('HSET', limits, scope, pack({ -1, -1, 0, 0, 0 }))
  return 0
end
if not old or old[1] <= tonumber(ARGV[2]) then
  local new = unpack_record(ARGV[3])
  if old and (old[3] ~= new[3] or old[4] ~= new[4]) then
    fill_buckets()
  end
  call('HSET', limits, scope, ARGV[3])
end
return 1
