-- The limit's settle on Redis: succeeded jobs, fenced by epoch, worker and lease.
-- ARGV[1] cmsgpack list of { id, epoch, worker, result }; answers how many were accepted
local items, ids = unpack_record(ARGV[1]), {}
for i = 1, #items do
  ids[i] = items[i][1]
end
local records, sets, finished, ended = get('j:', ids), {}, {}, {}
for i, item in ipairs(items) do
  local id, r = item[1], records[i] and unpack_record(records[i])
  if r and r[1] == 'r' and r[5] > now and r[3] == item[2] and r[4] == item[3] then
    r[1], r[5], r[7] = 's', 0, now
    local n = #sets
    sets[n + 1], sets[n + 2] = base .. 'j:' .. id, pack(r)
    sets[n + 3], sets[n + 4] = base .. 'r:' .. id, item[4]
    ended[#ended + 1] = id
    finished[#finished + 1] = now
    finished[#finished + 1] = id
  end
end
set(sets)
send('ZREM', base .. 'leases', ended)
send('ZADD', base .. 'finished', finished)
return #ended
