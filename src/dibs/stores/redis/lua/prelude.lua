-- Put before every verb but one.lua, behind clock.lua and stamp.lua: key names, records, and writes that go out in bulk.
--
-- KEYS[1]  the root of all keys, "{prefix}:"; the others are made from it, so all are in one slot.
--
-- keys, each behind the root (names hold no control characters, so a tab cannot be part of one):
--   j:<id>               string  the record: cmsgpack array, see the positions below
--   b:<id>               string  arguments, and behind a NUL the meta unless it is {}; never read here
--   r:<id>               string  the result, unless it is null
--   e:<id>               list    the last ten attempts that went wrong, cmsgpack arrays
--   p:<id>               string  what the handler last said: progress and note, behind a NUL the lines; if it did
--   n:<id>               string  of a step that needs others: their names, a NUL behind each
--   i:<id>               string  what a step was given: name, NUL, result, NUL for each need that is met
--   g:<flow>             hash    a flow: state (r, s, f, c), on_failure (s stop, c continue), open (how many steps
--                                are unfinished), created, finished (18 digits, or ''), name, meta (unless it is {})
--   s:<flow>             hash    its steps: name to id. With the last of them go all keys of the flow
--   d:<flow>             hash    the steps that need one: its name to their ids, one behind the other. An entry goes with
--                                its step, an id with its own: a need is on a job, whoever has its name later
--   flows                zset    every flow: id by itself
--   ids                  zset    every id, by itself: the order of find
--   o:<queue>\t<task>    zset    queued jobs by place: priority (5), run_at (18), id (32); all scores 0
--   o:<queue>\t<task>\t<limit key>   the same, of those that a claim found held back by the limit of their key
--   t:<queue>            set     lanes, which is what follows the first tab in o:, that may have jobs
--   l:<queue>            zset    running jobs by locked_until: id, priority, run_at, task
--   x:<queue>            zset    the same, once a claim has noticed that the lease expired
--   late:<queue>         zset    where those stand in the order: place, task. Only hints: checked when met
--   f:<state>:<queue>    zset    finished jobs by finished_at
--   z:f, z:c             zset    failed and cancelled jobs of all queues: id by itself
--   k:<queue>            hash    keys of unfinished jobs: key to id
--   u:<queue>            hash    keys of finished jobs that are to be unique for longer: key to id (32) and until when
--                                (18) of each. An entry lives no longer than its job
--   y:<queue>            zset    queued jobs that expire, by expires_at
--   c:t:<task>           zset    running jobs of a limited task by locked_until: id
--   c:k:<queue>\t<limit key>   the same, of all jobs with a limit key
--   limits               hash    q:<queue>, k:<queue> (for each key), t:<task> to cmsgpack array, see room.lua
--   rates                zset    q:<queue>, t:<task> by when their buckets will be full
--   rates:<queue>        zset    the same for limit keys; one that is full is as good as none
--   w:<queue>            zset    waiting steps: id by itself
--   queues               set     queues that may have jobs
--   settings             hash    queue to letters: p paused, l lifo, a and microseconds: ageing, - for none of them;
--                                '' to anything while limits are set
--   kept:<kind>          hash    what is no job: name to rank (16) and value
--   workers, info, held  zset, hash, hash   when seen; what it told; how many it runs
--   sleeping             set     queues that somebody waits for
--   offers               hash    workers to what may be claimed for them while they wait: cmsgpack of lease, until when the
--                                offer is good, packed tasks or ''
--   offers:<queue>       set     workers that may have an offer
--   hand:<worker>        channel a claim that was made for it: id (32), length of the record (8 hex digits), record, body
--   asked                zset    workers by when a claim of theirs was last asked to end
--   wake                 channel the name of a queue that may have work; or, behind a tab, that of an asked worker
--   layout               string  the version of all this
--
-- Strings are compared with < only where they hold digits and a-f: the server's locale has a say in it.

local call, sub, pack, unpack_record = redis.call, string.sub, cmsgpack.pack, cmsgpack.unpack
local base = KEYS[1]
local now = clock()

local STATE, ATTEMPTS, EPOCH, WORKER, LOCKED, STARTED, FINISHED = 1, 2, 3, 4, 5, 6, 7
local CANCEL, OUTCOME, PRIORITY, MAX, QUEUE, TASK, KEY = 8, 9, 10, 11, 12, 13, 14
local FLOW, STEP, NEEDS, RUN_AT, CREATED = 15, 16, 17, 18, 19 -- needs: how many are not met
-- Plain jobs end here. The others have all of these, '' for none; mark: 1 running and in c:t:, 2 queued and set aside.
local UNIQUE, EXPIRES, LIMIT_KEY, MARK = 20, 21, 22, 23

local CHUNK = 2000 -- arguments of one call: Lua's stack holds less than 8000

local now_text = stamp(now)

-- A script that has written goes on when memory is full, so verbs that must not fail then begin with
-- a write that needs none. It changes nothing.
local function needs_no_memory()
  call('DEL', base .. 'none')
end

-- reading ---------------------------------------------------------------------------------------

local jobs = {} -- id to record, or false

local function load(ids)
  local keys = {}
  for i = 1, #ids do
    keys[i] = base .. 'j:' .. ids[i]
  end
  for from = 1, #ids, CHUNK do
    local upto = math.min(from + CHUNK - 1, #ids)
    local found = call('MGET', unpack(keys, from, upto))
    for i = from, upto do
      local id, text = ids[i], found[i - from + 1]
      if jobs[id] == nil then
        jobs[id] = text and unpack_record(text)
      end
    end
  end
end

-- The key of one index of a queue. Made once: joining long strings is most of what a script does.
local key_cache = {}

local function index_key(part, queue)
  local cached = key_cache[part]
  if not cached then
    cached = {}
    key_cache[part] = cached
  end
  local key = cached[queue]
  if not key then
    key = base .. part .. ':' .. queue
    cached[queue] = key
  end
  return key
end

local order_cache = {}

-- Lane: a task; or, of those that a limit holds back, a task, a tab and a limit key.
local function order_key(queue, lane)
  local cached = order_cache[queue]
  if not cached then
    cached = {}
    order_cache[queue] = cached
  end
  local key = cached[lane]
  if not key then
    key = base .. 'o:' .. queue .. '\t' .. lane
    cached[lane] = key
  end
  return key
end

local function place(r, id)
  return r[PRIORITY] .. r[RUN_AT] .. id
end

local function lease_of(r, id)
  return id .. r[PRIORITY] .. r[RUN_AT] .. r[TASK]
end

local function held_by(r, worker, epoch)
  return r[STATE] == 'r' and r[LOCKED] > now and r[EPOCH] == epoch and r[WORKER] == worker
end

-- writing: collected here, sent by flush() ------------------------------------------------------

local sets, changed, packed = { n = 0 }, {}, {}
local drops, adds, lanes, held, woken = {}, {}, {}, {}, {}
local asked -- workers, once there are any
local moved = {} -- jobs that have been taken from one index to another and may move again, and were not sent yet

local function put(key, value)
  local n = sets.n
  sets[n + 1], sets[n + 2], sets.n = key, value, n + 2
end

local function save(id)
  changed[id] = true
end

local function drop(key, member)
  local list = drops[key]
  if not list then
    list = { n = 0 }
    drops[key] = list
  end
  local n = list.n + 1
  list[n], list.n = member, n
end

-- A score that is a number would be made text for each member of a set, and most members of one call have the same.
local score_texts = {}

local function add(key, score, member)
  local list, text = adds[key], score_texts[score]
  if not list then
    list = { n = 0 }
    adds[key] = list
  end
  if not text then
    text = string.format('%.17g', score)
    score_texts[score] = text
  end
  local n = list.n
  list[n + 1], list[n + 2], list.n = text, member, n + 2
end

local function stand(queue, task, where)
  local key = order_key(queue, task)
  add(key, 0, where)
  if not lanes[key] then
    lanes[key] = { queue, task }
  end
  if not woken[queue] then
    woken[queue] = sub(where, 6, 23) <= now_text
  end
end

-- Where a running job that is not plain is counted for limits.
local function count_in(r, id)
  if r[LIMIT_KEY] ~= '' then
    add(index_key('c:k', r[QUEUE] .. '\t' .. r[LIMIT_KEY]), r[LOCKED], id)
  end
  if r[MARK] == 1 then
    add(index_key('c:t', r[TASK]), r[LOCKED], id)
  end
end

local function hold(worker, change)
  held[worker] = (held[worker] or 0) + change
end

local function send(command, key, list)
  local n = list.n or #list
  for from = 1, n, CHUNK do
    call(command, key, unpack(list, from, math.min(from + CHUNK - 1, n)))
  end
end

-- Whoever runs the job learns that it is to end.
local function ask(r)
  asked = asked or {}
  asked[r[WORKER]] = true
end

local function send_sets()
  for from = 1, sets.n, CHUNK do
    call('MSET', unpack(sets, from, math.min(from + CHUNK - 1, sets.n)))
  end
end

-- Call out for a queue that somebody waits for: it has due work, or it is only worth a look.
local function wake(queue, due)
  if call('SREM', base .. 'sleeping', queue) == 1 then
    due = due and not string.find(call('HGET', base .. 'settings', queue) or '', 'p', 1, true)
    call('PUBLISH', base .. 'wake', due and queue or '\n' .. queue)
  end
end

local function flush()
  for id in pairs(changed) do
    local text = pack(jobs[id])
    packed[id] = text
    put(base .. 'j:' .. id, text)
  end
  send_sets()
  for key, list in pairs(drops) do
    send('ZREM', key, list)
  end
  for key, list in pairs(adds) do
    send('ZADD', key, list)
  end
  for _, lane in pairs(lanes) do
    call('SADD', base .. 't:' .. lane[1], lane[2])
  end
  for worker, more in pairs(held) do
    if more ~= 0 and call('HINCRBY', base .. 'held', worker, more) <= 0 then
      call('HDEL', base .. 'held', worker)
    end
  end
  for queue, due in pairs(woken) do
    wake(queue, due)
  end
  for worker in pairs(asked or {}) do
    local before = tonumber(call('ZSCORE', base .. 'asked', worker) or 0)
    call('ZADD', base .. 'asked', math.max(now, before + 1), worker)
    call('PUBLISH', base .. 'wake', '\t' .. worker)
  end
end

-- Made by the parts that are called like this, where a verb needs them.
local more, steps, add_steps, replace
