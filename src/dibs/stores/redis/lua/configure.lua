-- configure: a queue's settings; also pause and resume.
--
-- ARGV[1]  queue
-- ARGV[2]  a pattern for the settings that this one replaces: letters, each with the digits behind it
-- ARGV[3]  the new one, or '' for none
-- ARGV[4]  the version of the layout

local queue = ARGV[1]
local settings = call('HGET', base .. 'settings', queue) or '-'
settings = string.gsub(settings, ARGV[2], '') .. ARGV[3]
needs_no_memory()
call('HSET', base .. 'settings', queue, settings)
call('SET', base .. 'layout', ARGV[4], 'NX')
if ARGV[2] == 'p' and ARGV[3] == '' then
  wake(queue, false)
end
return 1
