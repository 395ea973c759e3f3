-- Claim jobs.
-- ?1 ids, ?2 worker, ?3 locked_until, ?4 now, ?5 1 if they come under limits
UPDATE dibs_jobs INDEXED BY sqlite_autoindex_dibs_jobs_1
SET state = 'running', ready = 0, worker = ?2, locked_until = ?3, started_at = ?4, outcome = NULL,
    attempts = attempts + 1, epoch = epoch + 1, counted = ?5
WHERE id IN (SELECT value FROM carray(?1))
