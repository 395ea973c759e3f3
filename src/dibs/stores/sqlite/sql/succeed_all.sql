-- Copy running jobs to the history as succeeded, those on which the lease of these claims is valid.
-- ?1 for each its id, behind it its epoch in ten digits, and its result; ?2 worker, ?3 now
INSERT INTO dibs_history (
    id, queue, task, state, priority, run_at, created_at, attempts, max_attempts, epoch, worker, cancel_asked,
    started_at, finished_at, outcome, key, flow, step, unique_until, expires_at,
    limit_key, errors, meta, args, result, report
)
SELECT
    id, queue, task, 'succeeded', priority, run_at, created_at, attempts, max_attempts, epoch, worker, cancel_asked,
    started_at, ?3, 'succeeded', key, flow, step, unique_until, expires_at, limit_key, errors, meta, args,
    CAST(substr(item.value, 27) AS TEXT), report
FROM carray(?1) AS item CROSS JOIN dibs_jobs INDEXED BY sqlite_autoindex_dibs_jobs_1
WHERE id = substr(item.value, 1, 16) AND epoch = CAST(substr(item.value, 17, 10) AS INTEGER) AND worker = ?2
    AND locked_until > ?3
