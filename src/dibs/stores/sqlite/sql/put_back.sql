-- Put a running job back into the line.
-- ?1 id, ?2 run_at, ?3 attempts, ?4 outcome or NULL, ?5 errors or NULL to keep them
UPDATE dibs_jobs
SET state = 'queued', ready = 1, locked_until = NULL, run_at = ?2, attempts = ?3, outcome = ?4,
    errors = coalesce(?5, errors)
WHERE id = ?1
