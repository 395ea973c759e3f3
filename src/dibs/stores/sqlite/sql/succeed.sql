-- Copy a running job to the history as succeeded, if the lease of this claim on it is valid.
-- ?1 id, ?2 epoch, ?3 worker, ?4 now, ?5 result
INSERT INTO dibs_history (
    id, queue, task, state, priority, run_at, created_at, attempts, max_attempts, epoch, worker, cancel_asked,
    started_at, finished_at, outcome, key, flow, step, unique_until, expires_at,
    limit_key, errors, meta, args, result, report
)
SELECT
    id, queue, task, 'succeeded', priority, run_at, created_at, attempts, max_attempts, epoch, worker, cancel_asked,
    started_at, ?4, 'succeeded', key, flow, step, unique_until, expires_at, limit_key, errors, meta, args, ?5,
    report
FROM dibs_jobs
WHERE id = ?1 AND epoch = ?2 AND worker = ?3 AND locked_until > ?4
