-- Shared by the verbs that pass jobs whose lease or time to start may have expired.

-- Its time to start has passed.
local function expired(r)
  local expires = r[EXPIRES]
  return expires and expires ~= '' and expires <= now_text
end

-- How a job ends that is queued or whose lease expired and that is not to be started; nil if it may be.
local function end_of(r)
  if r[STATE] == 'r' then
    if r[CANCEL] == 1 then
      return 'c'
    elseif r[ATTEMPTS] >= r[MAX] then
      return 'f'
    end
  end
  return expired(r) and 'c' or nil
end

-- Close the books on the attempt, if there was one: behind it the job is to be taken, put back or finished.
local function close_books(r, id)
  leave(r, id)
  if r[STATE] == 'r' then
    blame(r, id, 'lease expired', '')
  end
end

-- Do the first of these, if it has come to that. False if the job may be started.
local function is_over(r, id)
  local state = end_of(r)
  if not state then
    return false
  end
  close_books(r, id)
  r[OUTCOME] = ''
  finish(r, id, state)
  return true
end
