-- find: the next jobs that match, newest id first.
--
-- ARGV[1], ARGV[2]  see scan.lua
-- ARGV[3]  limit
-- answers  where to go on, or '' at the end; then the jobs, see look.lua

local limit, ids = tonumber(ARGV[3]), {}
local go_on = scan(function(id)
  ids[#ids + 1] = id
  return #ids < limit
end)
local answers = { go_on }
for _, value in ipairs(look(ids)) do
  answers[#answers + 1] = value
end
return answers
