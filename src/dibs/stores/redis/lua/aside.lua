-- aside: do what a claim does to jobs that it passes and does not take, for one that does not use a script.
--
-- ARGV[1]  queue
-- ARGV[2]  cmsgpack list of ids
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
    if not is_over(r, id) and not late and rooms.full_key(r) then
      rooms.set_aside(r, id)
    end
  end
end
flush()
return 1
