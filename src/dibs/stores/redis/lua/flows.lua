-- flows: the next flows in these states, newest id first.
--
-- ARGV[1]  the states, as letters
-- ARGV[2]  the id to start behind, or ''
-- ARGV[3]  limit
-- answers  where to go on, or '' at the end; then for each see tell.lua

local EXAMINED, COUNTED = 1000, 10000 -- flows looked at in one call, and steps counted, give or take a flow

local states, after, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])
local ids =
  call('ZREVRANGEBYLEX', base .. 'flows', after == '' and '+' or '(' .. after, '-', 'LIMIT', 0, EXAMINED)
local answers, found, counted = { '' }, 0, 0
for i, flow in ipairs(ids) do
  if string.find(states, call('HGET', base .. 'g:' .. flow, 'state'), 1, true) then
    counted = counted + call('HLEN', base .. 's:' .. flow)
    tell(answers, flow)
    found = found + 1
  end
  if found == limit or counted > COUNTED or i == EXAMINED then
    answers[1] = flow
    break
  end
end
return answers
