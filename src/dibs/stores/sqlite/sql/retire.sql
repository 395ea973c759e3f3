-- Copy an unfinished job to the history.
-- ?1 id, ?2 state, ?3 now, ?4 outcome or NULL, ?5 errors or NULL to keep them, ?6 1 if a cancel is asked with it
INSERT INTO dibs_history (
    id, queue, task, state, priority, run_at, created_at, attempts, max_attempts, epoch, worker, cancel_asked,
    started_at, finished_at, outcome, key, flow, step, unique_until, expires_at,
    limit_key, errors, meta, args, result, report
)
SELECT
    id, queue, task, ?2, priority, run_at, created_at, attempts, max_attempts, epoch, worker, max(cancel_asked, ?6),
    started_at, ?3, ?4, key, flow, step, unique_until, expires_at, limit_key,
    coalesce(?5, errors), meta, args, NULL, report
FROM dibs_jobs
WHERE id = ?1
