-- Shared by what counts the steps of a flow, and what follows from the end of one.

local function make_tally()
  -- The states of jobs by id, as they are now. A packed record is not taken apart for it: an array of 19 begins
  -- with three bytes, and a string of one letter with one. With open, records of unfinished jobs are loaded.
  local function states_of(ids, open)
    local states = {}
    for from = 1, #ids, CHUNK do
      local upto = math.min(from + CHUNK - 1, #ids)
      local keys = {}
      for i = from, upto do
        keys[#keys + 1] = base .. 'j:' .. ids[i]
      end
      local found = call('MGET', unpack(keys))
      for i = from, upto do
        local id, text = ids[i], found[i - from + 1]
        if jobs[id] then
          states[id] = jobs[id][STATE]
        elseif text then
          local state = sub(text, 5, 5)
          states[id] = state
          if open and (state == 'w' or state == 'q' or state == 'r') then
            jobs[id] = unpack_record(text)
          end
        end
      end
    end
    return states
  end

  -- How many steps of a flow are in each state.
  local function tally(flow)
    local counts = { w = 0, q = 0, r = 0, s = 0, f = 0, c = 0 }
    for _, state in pairs(states_of(call('HVALS', base .. 's:' .. flow))) do
      counts[state] = counts[state] + 1
    end
    return counts
  end

  return states_of, tally
end
