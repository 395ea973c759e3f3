-- One job, if it still stands in line.
-- ?1 rowid
SELECT id, run_at, attempts, max_attempts, epoch, worker, started_at, cancel_asked, errors, flow, step, expires_at,
    rowid, priority, task, limit_key, locked_until, created_at, key, meta, args
FROM dibs_jobs WHERE rowid = ?1 AND ready = 1
