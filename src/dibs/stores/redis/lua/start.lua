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
local known = known_job(steps)
if known then
  return known
end
put(base .. 'g:' .. flow, pack({ 'r', ARGV[3], #steps, 0, now_text, ARGV[2] }))
if ARGV[4] ~= '' then
  put(base .. 'm:' .. flow, ARGV[4])
end
for i = 1, #steps do
  bring(flow, steps[i], steps[i][10] > 0 and 'w' or 'q')
end
add(base .. 'flows', 0, flow)
flush()
name_steps(flow)
call('SET', base .. 'layout', ARGV[6], 'NX')
return 'created'
