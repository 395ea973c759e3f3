-- flow: one flow, as it is now.
--
-- ARGV[1]  id
-- answers  see tell.lua; nothing if there is no such flow

local answers = {}
local record = call('GET', base .. 'g:' .. ARGV[1])
if record then
  tell(answers, ARGV[1], record)
end
return answers
