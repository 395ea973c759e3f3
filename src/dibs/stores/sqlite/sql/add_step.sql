-- Store a step of a flow, unless the id of its job is known; gives a row if it was stored.
-- ?1 id, ?2 queue, ?3 task, ?4 state, ?5 ready, ?6 priority, ?7 run_at, ?8 created_at, ?9 max_attempts, ?10 meta,
-- ?11 args, ?12 flow, ?13 step, ?14 unmet, ?15 expires_at, ?16 limit_key
-- Also run through other drivers: plain ? in this order, nothing newer than SQLite 3.35.
INSERT INTO dibs_jobs (
    id, queue, task, state, ready, priority, run_at, created_at, max_attempts, meta, args, flow, step, unmet, expires_at,
    limit_key
)
SELECT new.* FROM (
    SELECT ? AS id, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
) AS new
WHERE NOT EXISTS (SELECT 1 FROM dibs_history AS past WHERE past.id = new.id)
ON CONFLICT DO NOTHING
RETURNING 1
