-- Due jobs of a queue that a claim may have to end: those whose leases expired, and those that must not start any more.
-- ?1 queue, ?2 now, ?3 tasks as a JSON array or NULL
SELECT id, run_at, attempts, max_attempts, epoch, worker, started_at, cancel_asked, errors, flow, step, expires_at,
    rowid, priority, task, limit_key, locked_until, created_at, key, meta, args
FROM dibs_jobs
WHERE rowid IN (
    SELECT rowid FROM dibs_jobs INDEXED BY dibs_leases WHERE queue = ?1 AND ready = 1 AND locked_until <= ?2
    UNION
    SELECT rowid FROM dibs_jobs INDEXED BY dibs_expiring WHERE queue = ?1 AND expires_at <= ?2 AND ready = 1
)
    AND run_at <= ?2
    AND (locked_until IS NULL OR locked_until <= ?2)
    AND (?3 IS NULL OR task IN (SELECT value FROM json_each(?3)))
