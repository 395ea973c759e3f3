-- start: store a flow with all of its steps, or nothing.
--
-- ARGV[1]  id of the flow
-- ARGV[2]  its name
-- ARGV[3]  s to stop when a step fails, c to continue
-- ARGV[4]  its meta, or '' for {}
-- ARGV[5]  cmsgpack list of steps, see bring.lua
-- ARGV[6]  the version of the layout
-- answers  created, there if the flow is, or the id of a job that is there already
--
-- The first write of this script is one that the server refuses when memory is full: nothing is half-stored.

local flow = ARGV[1]
if call('EXISTS', base .. 'g:' .. flow) == 1 then
  return 'there'
end
local steps = unpack_record(ARGV[5])
local bring, name_steps, known_job = make_bring()
local known = known_job(steps)
if known then
  return known
end
for i = 1, #steps do
  bring(flow, steps[i], steps[i][10] > 0 and 'w' or 'q')
end
add(base .. 'flows', 0, flow)
flush()
name_steps(flow)
local key = base .. 'g:' .. flow
call('HSET', key, 'state', 'r', 'on_failure', ARGV[3], 'open', #steps, 'name', ARGV[2])
call('HSET', key, 'created', now_text, 'finished', '')
if ARGV[4] ~= '' then
  call('HSET', key, 'meta', ARGV[4])
end
call('SET', base .. 'layout', ARGV[6], 'NX')
return 'created'
