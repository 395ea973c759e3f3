-- Part of a claim: the order of a queue that ages. Made only for those.
--
-- Each priority of a lane has a cursor of its own, and is in the order of run_at: the one whose first job is worth
-- most comes first, so nobody reads through a flood of urgent jobs.

local function age(ageing)
  -- Smaller comes first. The priority is counted from the smallest, so it is never below 0, and all is below 2^53.
  local function worth(where)
    return tonumber(sub(where, 6, 23)) + tonumber(sub(where, 1, 5)) * ageing
  end

  local function before(a, b)
    local first, second = worth(a), worth(b)
    if first ~= second then
      return first < second
    end
    return sub(a, 24, 55) < sub(b, 24, 55)
  end

  local function refill(c)
    local found = call('ZRANGEBYLEX', c.key, c.from, c.upto, 'LIMIT', 0, c.chunk)
    local n = #found
    if n == 0 then
      c.done = true
    else
      c.buffer, c.size, c.at, c.from = found, n, 1, '(' .. found[n]
    end
  end

  local function split(all)
    local parts = {}
    for _, c in ipairs(all) do
      local head = call('ZRANGEBYLEX', c.key, '-', '+', 'LIMIT', 0, 1)[1]
      if not head then
        c.done = true
        parts[#parts + 1] = c
      end
      while head do
        local priority = sub(head, 1, 5)
        local part = { key = c.key, task = c.task, limit_key = c.limit_key, late = c.late, at = 1, size = 0 }
        part.some, part.from, part.upto = true, '[' .. priority, '[' .. priority .. now_text .. '\255'
        parts[#parts + 1] = part
        head = call('ZRANGEBYLEX', c.key, '(' .. priority .. '\255', '+', 'LIMIT', 0, 1)[1]
      end
    end
    return parts
  end

  return { refill = refill, before = before, split = split }
end
