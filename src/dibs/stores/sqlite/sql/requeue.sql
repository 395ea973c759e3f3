-- Copy a finished job back to the unfinished ones, unless its key is busy. Of its report the lines are kept.
-- ?1 id, ?2 now
INSERT INTO dibs_jobs (
    id, queue, task, state, ready, priority, run_at, created_at, attempts, max_attempts, epoch, key, flow, step,
    unique_until, expires_at, limit_key, errors, meta, args, report
)
SELECT
    id, queue, task, 'queued', 1, priority, ?2, created_at, 0, max_attempts, epoch, key, flow, step,
    unique_until, expires_at, limit_key, errors, meta, args, json_remove(report, '$.progress', '$.note')
FROM dibs_history WHERE id = ?1
ON CONFLICT DO NOTHING
