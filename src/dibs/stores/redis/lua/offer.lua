-- offer: what whoever brings a job may claim for a worker, once.
--
-- ARGV[1]  worker
-- ARGV[2]  lease in microseconds
-- ARGV[3]  cmsgpack list of the tasks that the worker knows, or '' for any
-- ARGV[4]  for how many microseconds the offer is good
-- ARGV[5]... queues
-- answers  the time

call('HSET', base .. 'offers', ARGV[1], pack({ tonumber(ARGV[2]), now + ARGV[4], ARGV[3] }))
for i = 5, #ARGV do
  call('SADD', base .. 'offers:' .. ARGV[i], ARGV[1])
end
return now_text
