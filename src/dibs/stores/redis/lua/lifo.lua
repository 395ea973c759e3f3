-- Part of a claim: the order of a lifo queue. Made only for those.

local function newest_first()
  local function refill(c)
    while true do
      if not c.priority then
        local head = call('ZRANGEBYLEX', c.key, c.from, '+', 'LIMIT', 0, 1)[1]
        if not head then
          c.done = true
          return
        end
        c.some = true
        c.priority = sub(head, 1, 5)
        c.upto = '[' .. c.priority .. now_text .. '\255'
      end
      local found = call('ZREVRANGEBYLEX', c.key, c.upto, '[' .. c.priority, 'LIMIT', 0, c.chunk)
      local n = #found
      if n > 0 then
        c.buffer, c.size, c.at, c.upto = found, n, 1, '(' .. found[n]
        return
      end
      c.from, c.priority = '(' .. c.priority .. '\255', nil
    end
  end

  local function before(a, b)
    local first, second = sub(a, 1, 5), sub(b, 1, 5)
    if first ~= second then
      return first < second
    end
    return sub(a, 6, 55) > sub(b, 6, 55)
  end

  return { refill = refill, before = before }
end
