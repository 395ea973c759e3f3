-- Store a job, unless its id is known or its key is busy; gives a row if it was stored.
-- ?1 id, ?2 queue, ?3 task, ?4 priority, ?5 run_at, ?6 created_at, ?7 max_attempts, ?8 key, ?9 meta, ?10 args
-- Also run through other drivers: plain ? in this order, nothing newer than SQLite 3.35.
INSERT INTO dibs_jobs (id, queue, task, state, ready, priority, run_at, created_at, max_attempts, key, meta, args)
SELECT new.* FROM (
    SELECT ? AS id, ?, ?, 'queued', 1, ?, ?, ?, ?, ?, ?, ?
) AS new
WHERE NOT EXISTS (SELECT 1 FROM dibs_history AS past WHERE past.id = new.id)
ON CONFLICT DO NOTHING
RETURNING 1
