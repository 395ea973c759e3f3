-- One job, finished or not.
-- ?1 id
SELECT id, queue, task, args, state, priority, run_at, created_at, attempts, max_attempts, epoch, worker,
    locked_until, cancel_asked, started_at, NULL, NULL, errors, key, unique_until, expires_at, limit_key,
    flow, step, meta, report
FROM dibs_jobs WHERE id = ?1
UNION ALL
SELECT id, queue, task, args, state, priority, run_at, created_at, attempts, max_attempts, epoch, worker,
    NULL, cancel_asked, started_at, finished_at, result, errors, key, unique_until, expires_at, limit_key,
    flow, step, meta, report
FROM dibs_history WHERE id = ?1
