-- Store a job, unless its id is known or an unfinished job has its key; no finished one keeps it busy, that was looked at.
-- ?1 id, ?2 queue, ?3 task, ?4 priority, ?5 run_at, ?6 created_at, ?7 max_attempts, ?8 key, ?9 unique_until,
-- ?10 expires_at, ?11 limit_key, ?12 meta, ?13 args
INSERT INTO dibs_jobs (
    id, queue, task, state, ready, priority, run_at, created_at, max_attempts, key, unique_until, expires_at, limit_key,
    meta, args
)
SELECT ?1, ?2, ?3, 'queued', 1, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13
WHERE NOT EXISTS (SELECT 1 FROM dibs_history WHERE id = ?1)
ON CONFLICT DO NOTHING
