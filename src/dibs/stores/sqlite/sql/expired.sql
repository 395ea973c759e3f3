-- Running jobs of all queues whose leases expired, the longest expired first.
-- ?1 now, ?2 limit
SELECT id, run_at, attempts, max_attempts, epoch, worker, started_at, cancel_asked, errors, flow, step,
    expires_at
FROM dibs_jobs INDEXED BY dibs_leases
WHERE locked_until <= ?1
ORDER BY locked_until, id
LIMIT ?2
