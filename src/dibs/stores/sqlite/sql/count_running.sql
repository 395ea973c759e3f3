-- From now on, count the running jobs that come under a limit of a task, or of each key of a queue.
-- ?1 task or NULL, ?2 queue or NULL
UPDATE dibs_jobs INDEXED BY dibs_leases SET counted = 1
WHERE locked_until IS NOT NULL AND (task = ?1 OR (queue = ?2 AND limit_key <> ''))
