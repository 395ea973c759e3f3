-- get: one job, as it is now.
--
-- ARGV[1]  id
-- answers  see look.lua; nothing if there is no such job

return look({ ARGV[1] })
