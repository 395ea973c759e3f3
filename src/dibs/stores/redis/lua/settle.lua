-- settle: record how claims ended, each fenced by job, epoch, worker and an unexpired lease.
--
-- ARGV[1]  cmsgpack list of settlements: id, epoch, worker, kind, text (the result, or the error), traceback,
--          delay in microseconds; for a success that adds steps also: the steps, see bring.lua, and the name that
--          they need and that is none of them, or ''. kind: s succeeded, f failed, c cancelled, r retry, l released,
--          z snoozed
-- answers  a letter for each: a accepted, l lost

local function end_attempt(r, id, kind, text, traceback, delay)
  if kind == 'r' or kind == 'f' then
    blame(r, id, text, traceback)
  end
  leave(r, id)
  if kind == 's' then
    if text ~= '' then
      put(base .. 'r:' .. id, text)
      if r[FLOW] ~= '' then
        steps().results[id] = text
      end
    end
    finish(r, id, 's')
  elseif kind == 'f' or kind == 'c' then
    finish(r, id, kind)
  elseif r[CANCEL] == 1 then
    finish(r, id, 'c')
  elseif kind == 'r' then
    if r[ATTEMPTS] >= r[MAX] then
      finish(r, id, 'f')
    else
      put_back(r, id, stamp(now + delay))
    end
  else
    r[ATTEMPTS] = r[ATTEMPTS] - 1
    put_back(r, id, kind == 'z' and stamp(now + delay) or r[RUN_AT])
  end
end

local items = unpack_record(ARGV[1])
local ids, answers, succeeding = {}, {}, nil
for i = 1, #items do
  ids[i] = items[i][1]
end
load(ids)
for i = 1, #items do
  local r = jobs[ids[i]]
  if r and r[FLOW] ~= '' and items[i][4] == 's' then
    succeeding = succeeding or {}
    succeeding[#succeeding + 1] = r
  end
end
if succeeding then
  steps().expect(succeeding)
end
needs_no_memory()
for i = 1, #items do
  local id, epoch, worker, kind, text, traceback, delay, new, adder = unpack(items[i])
  local r = jobs[id]
  local answer = 'l'
  if r then
    if held_by(r, worker, epoch) then
      r[OUTCOME] = kind
      if new then
        add_steps(end_attempt, r, id, text, new, adder)
      else
        end_attempt(r, id, kind, text, traceback, delay)
      end
      answer = 'a'
    elseif r[WORKER] == worker and r[EPOCH] == epoch and r[OUTCOME] == kind then
      answer = 'a'
    end
  end
  answers[i] = answer
end
flush()
return table.concat(answers)
