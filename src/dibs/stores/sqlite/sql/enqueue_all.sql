-- Store a job, unless its id is known or its key is busy; the number of changes says which.
-- ?1 id, ?2 queue, ?3 task, ?4 priority, ?5 run_at, ?6 created_at, ?7 max_attempts, ?8 key, ?9 meta, ?10 args
INSERT INTO dibs_jobs (id, queue, task, state, ready, priority, run_at, created_at, max_attempts, key, meta, args)
SELECT ?1, ?2, ?3, 'queued', 1, ?4, ?5, ?6, ?7, ?8, ?9, ?10
WHERE NOT EXISTS (SELECT 1 FROM dibs_history WHERE id = ?1)
ON CONFLICT DO NOTHING
