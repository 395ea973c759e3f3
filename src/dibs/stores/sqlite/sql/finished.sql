-- Finished jobs with all fields. {where} is what a filter makes of itself, see filters.py.
SELECT id, queue, task, args, state, priority, run_at, created_at, attempts, max_attempts, epoch, worker,
    NULL, cancel_asked, started_at, finished_at, result, errors, key, unique_until, expires_at, limit_key,
    flow, step, meta, report
FROM dibs_history WHERE {where}
