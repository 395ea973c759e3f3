-- Shared by the verbs that take the oldest of many sorted sets: sweep and prune.

-- The members with the smallest scores of all sets, up to limit, as { key, member } in the order of
-- (score, member). sources: list of { key, greatest score }.
local function oldest(sources, limit)
  local cursors, found = {}, {}
  for i, source in ipairs(sources) do
    cursors[i] = { key = source[1], upto = source[2], at = 1, size = 0, read = 0 }
  end
  local function head(c)
    if c.at > c.size then
      local chunk = math.min(limit, 50)
      local got = call('ZRANGEBYSCORE', c.key, '-inf', c.upto, 'WITHSCORES', 'LIMIT', c.read, chunk)
      c.buffer, c.at, c.size, c.read = got, 1, #got, c.read + #got / 2
    end
    if c.size > 0 and not c.text then
      c.text = stamp(tonumber(c.buffer[c.at + 1])) .. sub(c.buffer[c.at], 1, 32)
    end
    return c.text
  end
  while #found < limit do
    local best
    for i = #cursors, 1, -1 do
      local c = cursors[i]
      if not head(c) then
        table.remove(cursors, i)
      elseif not best or c.text < best.text then
        best = c
      end
    end
    if not best then
      break
    end
    found[#found + 1] = { best.key, best.buffer[best.at] }
    best.at, best.text = best.at + 2, nil
  end
  return found
end
