-- Put before each script of the limit on Redis. Like the store's own layout: a record and a body for each job, the
-- queue as a lexicographic set, leases by time, finished jobs by time. Every key begins with KEYS[1].
--
--   j:<id>  record: cmsgpack { state, attempts, epoch, worker, locked_until, started_at, finished_at, place,
--           max_attempts, queue, task, created_at }
--   b:<id>  arguments   r:<id>  result   order, leases, finished  sorted sets; place: priority (5), run_at (18), id (32)
local call, pack, unpack_record = redis.call, cmsgpack.pack, cmsgpack.unpack
local base, CHUNK = KEYS[1], 2000
local t = call('TIME')
local now = t[1] * 1000000 + t[2]

local function send(command, key, list)
  for from = 1, #list, CHUNK do
    call(command, key, unpack(list, from, math.min(from + CHUNK - 1, #list)))
  end
end

local function set(list)
  for from = 1, #list, CHUNK do
    call('MSET', unpack(list, from, math.min(from + CHUNK - 1, #list)))
  end
end

local function get(part, ids)
  local found = {}
  for from = 1, #ids, CHUNK do
    local keys = {}
    for i = from, math.min(from + CHUNK - 1, #ids) do
      keys[#keys + 1] = base .. part .. ids[i]
    end
    for i, text in ipairs(call('MGET', unpack(keys))) do
      found[from + i - 1] = text
    end
  end
  return found
end
