-- aside: do what a claim does to jobs that it passes and does not take, for one that does not use a script.
--
-- ARGV[1]  queue
-- ARGV[2]  cmsgpack list of ids
-- ARGV[3]  cmsgpack list of workers that may hold nothing any more
-- answers  nothing

load(unpack_record(ARGV[2]))
needs_no_memory()
local rooms = make_rooms(ARGV[1])
for _, id in ipairs(unpack_record(ARGV[2])) do
  local r = jobs[id]
  local late = r and r[STATE] == 'r' and r[LOCKED] <= now
  if late or r and r[STATE] == 'q' and r[RUN_AT] <= now_text then
    if late and end_of(r) then
      drop(base .. 'late:' .. r[QUEUE], place(r, id) .. r[TASK])
    end
    if not is_over(r, id) and not late and r[MARK] ~= 2 and rooms.full_key(r) then
      rooms.set_aside(r, id)
    end
  end
end
flush()
for _, worker in ipairs(unpack_record(ARGV[3])) do
  if tonumber(call('HGET', base .. 'held', worker) or 1) <= 0 then
    call('HDEL', base .. 'held', worker)
  end
end
return 1
