-- workers: every worker that was seen or holds a claim.
--
-- answers  three lists: name, seen at...; name, info...; name, running...

return {
  call('ZRANGE', base .. 'workers', 0, -1, 'WITHSCORES'),
  call('HGETALL', base .. 'info'),
  call('HGETALL', base .. 'held'),
}
