-- kept: everything that is kept of some kinds.
--
-- ARGV[1]  kind, and so on
-- answers  the time, then for each kind a list: name, rank and value...

local answers = { now_text }
for i = 1, #ARGV do
  answers[i + 1] = call('HGETALL', base .. 'kept:' .. ARGV[i])
end
return answers
