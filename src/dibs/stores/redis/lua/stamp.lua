-- Put behind the clock of every verb: microseconds as 18 digits, which sort as text.
-- In two halves, since whole numbers are written several times as fast as doubles of that size.
local function stamp(micros)
  local low = micros % 1000000000
  return string.format('%09d%09d', (micros - low) / 1000000000, low)
end
