-- flow: one flow, as it is now.
--
-- ARGV[1]  id
-- answers  see tell.lua; nothing if there is no such flow

local answers = {}
if call('EXISTS', base .. 'g:' .. ARGV[1]) == 1 then
  tell(answers, ARGV[1])
end
return answers
