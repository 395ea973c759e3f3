-- Claim a job.
-- ?1 rowid, ?2 worker, ?3 locked_until, ?4 now, ?5 errors or NULL to keep them, ?6 1 if its task has a limit
UPDATE dibs_jobs
SET state = 'running', ready = 0, worker = ?2, locked_until = ?3, started_at = ?4, outcome = NULL,
    attempts = attempts + 1, epoch = epoch + 1, errors = coalesce(?5, errors), counted = ?6
WHERE rowid = ?1
