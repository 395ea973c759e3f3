-- The clock of every verb: the server's, in whole microseconds since 1970.
-- A double holds them exactly until the year 2255.
local function clock()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end
