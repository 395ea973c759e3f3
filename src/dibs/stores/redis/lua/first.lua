-- Put between few.lua and the prelude of claim, which goes on where few.lua does not.

local claimed = few(clock(), ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5])
if claimed then
  return claimed
end
