-- configure: a queue's settings; also pause and resume.
--
-- ARGV[1]  queue
-- ARGV[2]  the letter of the setting: p paused, l lifo
-- ARGV[3]  1 to set it, 0 to take it back
-- ARGV[4]  the version of the layout

local queue, letter = ARGV[1], ARGV[2]
local settings = call('HGET', base .. 'settings', queue) or '-'
settings = string.gsub(settings, letter, '')
if ARGV[3] == '1' then
  settings = settings .. letter
end
needs_no_memory()
call('HSET', base .. 'settings', queue, settings)
call('SET', base .. 'layout', ARGV[4], 'NX')
if letter == 'p' and ARGV[3] == '0' then
  wake(queue)
end
return 1
