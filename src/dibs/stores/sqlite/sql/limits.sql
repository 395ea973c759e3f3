-- All limits, queues first, then tasks, by name, a queue's own before that of its keys.
SELECT kind, name, concurrency, starts, per, rank FROM dibs_limits
ORDER BY kind = 'task', name, kind <> 'queue'
