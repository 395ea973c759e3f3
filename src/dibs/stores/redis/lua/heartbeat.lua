-- heartbeat: renew leases, and record that the worker was seen.
--
-- ARGV[1]  worker
-- ARGV[2]  lease in microseconds
-- ARGV[3]  what the worker tells about itself, or '' to keep what it told
-- ARGV[4]  cmsgpack list of claims: id, epoch, id, epoch...
-- ARGV[5]  cmsgpack map of what handlers said: id to report, see p: in prelude.lua; or '' for nothing
-- answers  a letter for each: h held, c cancel asked, l lost

local worker, lease = ARGV[1], tonumber(ARGV[2])
local claims = unpack_record(ARGV[4])
local reports = ARGV[5] ~= '' and unpack_record(ARGV[5]) or {}
local ids, answers = {}, {}
for i = 1, #claims, 2 do
  ids[#ids + 1] = claims[i]
end
load(ids)
needs_no_memory()
call('ZADD', base .. 'workers', now, worker)
if ARGV[3] ~= '' then
  call('HSET', base .. 'info', worker, ARGV[3])
end
for i, id in ipairs(ids) do
  local r = jobs[id]
  if r and held_by(r, worker, claims[2 * i]) then
    if r[LOCKED] < now + lease then
      r[LOCKED] = now + lease
      save(id)
    end
    local member = lease_of(r, id)
    drop(index_key('x', r[QUEUE]), member)
    add(index_key('l', r[QUEUE]), r[LOCKED], member)
    if r[UNIQUE] then
      count_in(r, id)
    end
    if reports[id] then
      put(base .. 'p:' .. id, reports[id])
    end
    answers[i] = r[CANCEL] == 1 and 'c' or 'h'
  else
    answers[i] = 'l'
  end
end
flush()
return table.concat(answers)
