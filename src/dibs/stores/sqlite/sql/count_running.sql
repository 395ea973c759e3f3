-- Count the running jobs of a task from now on.
-- ?1 task
UPDATE dibs_jobs INDEXED BY dibs_leases SET counted = 1 WHERE locked_until IS NOT NULL AND task = ?1
