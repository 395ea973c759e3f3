-- Store a step of a flow, unless the id of its job is known; the number of changes says which.
-- ?1 id, ?2 queue, ?3 task, ?4 state, ?5 ready, ?6 priority, ?7 run_at, ?8 created_at, ?9 max_attempts, ?10 meta,
-- ?11 args, ?12 flow, ?13 step, ?14 unmet, ?15 expires_at, ?16 limit_key
INSERT INTO dibs_jobs (
    id, queue, task, state, ready, priority, run_at, created_at, max_attempts, meta, args, flow, step, unmet, expires_at,
    limit_key
)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16
WHERE NOT EXISTS (SELECT 1 FROM dibs_history WHERE id = ?1)
ON CONFLICT DO NOTHING
