-- Store a job, unless its id is known or its key is busy; gives a row if it was stored.
-- ?1 id, ?2 queue, ?3 task, ?4 priority, ?5 run_at, ?6 created_at, ?7 max_attempts, ?8 key, ?9 unique_until,
-- ?10 expires_at, ?11 limit_key, ?12 meta, ?13 args
-- Also run through other drivers: plain ? in this order, nothing newer than SQLite 3.35.
INSERT INTO dibs_jobs (
    id, queue, task, state, ready, priority, run_at, created_at, max_attempts, key, unique_until, expires_at, limit_key,
    meta, args
)
SELECT new.* FROM (
    SELECT ? AS id, ? AS queue, ?, 'queued', 1, ?, ?, ? AS created_at, ?, ? AS key, ?, ?, ?, ?, ?
) AS new
WHERE NOT EXISTS (SELECT 1 FROM dibs_history AS past WHERE past.id = new.id)
    AND (new.key IS NULL OR NOT EXISTS (
        SELECT 1 FROM dibs_history AS past INDEXED BY dibs_windows
        WHERE past.queue = new.queue AND past.key = new.key AND past.unique_until > new.created_at
    ))
ON CONFLICT DO NOTHING
RETURNING 1
