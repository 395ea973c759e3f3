-- limits: what limits there are, and how far they are used.
--
-- ARGV[1]  id of a job, or '' for all limits
-- answers  the time, the job's limit key or ''; then for each: the scope, as in limits, the limit, see room.lua, how
--          many are running, or '' where each key has its own, and when its bucket will be full

local answers, fields, limit_key = { now_text, '' }, {}, ''
if ARGV[1] == '' then
  fields = call('HKEYS', base .. 'limits')
else
  load({ ARGV[1] })
  local r = jobs[ARGV[1]]
  if r then
    limit_key = r[LIMIT_KEY] or ''
    fields = { 'q:' .. r[QUEUE], 't:' .. r[TASK], limit_key ~= '' and 'k:' .. r[QUEUE] or nil }
  end
end

local function use_of(scope)
  local kind, name = sub(scope, 1, 1), sub(scope, 3)
  if kind == 'q' then
    return running_in(name), call('ZSCORE', base .. 'rates', scope)
  elseif kind == 't' then
    return valid_in(base .. 'c:t:' .. name), call('ZSCORE', base .. 'rates', scope)
  elseif limit_key ~= '' then
    return valid_in(base .. 'c:k:' .. name .. '\t' .. limit_key), call('ZSCORE', base .. 'rates:' .. name, limit_key)
  end
  return '', '0'
end

answers[2] = limit_key
for _, scope in ipairs(fields) do
  local limit = call('HGET', base .. 'limits', scope)
  if limit then
    local running, full_at = use_of(scope)
    for _, value in ipairs({ scope, limit, running, full_at or '0' }) do
      answers[#answers + 1] = value
    end
  end
end
return answers
