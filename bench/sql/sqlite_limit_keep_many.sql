-- The limit's settle on SQLite, first half, of many: copies succeeded jobs to the history, fenced by epoch, worker and lease.
-- ?1 for each its id, its epoch in ten digits and its result; ?2 worker, ?3 now
INSERT INTO dibs_history (
    id, queue, task, state, priority, run_at, created_at, attempts, max_attempts, epoch, worker, cancel_asked,
    started_at, finished_at, outcome, key, flow, step, errors, meta, args, result
)
SELECT
    id, queue, task, 'succeeded', priority, run_at, created_at, attempts, max_attempts, epoch, worker, cancel_asked,
    started_at, ?3, 'succeeded', key, flow, step, errors, meta, args, CAST(substr(value, 27) AS TEXT)
FROM carray(?1) CROSS JOIN dibs_jobs
WHERE id = substr(value, 1, 16) AND epoch = CAST(substr(value, 17, 10) AS INTEGER) AND worker = ?2 AND locked_until > ?3
