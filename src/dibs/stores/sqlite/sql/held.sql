-- A running job, if the lease of this claim on it is valid.
-- ?1 id, ?2 epoch, ?3 worker, ?4 now
SELECT id, run_at, attempts, max_attempts, epoch, worker, started_at, cancel_asked, errors, flow, step,
    expires_at
FROM dibs_jobs
WHERE id = ?1 AND epoch = ?2 AND worker = ?3 AND locked_until > ?4
