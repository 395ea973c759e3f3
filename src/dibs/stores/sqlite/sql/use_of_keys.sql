-- The limit keys of the running jobs of a queue, one row for each job, and whether its lease is valid.
-- ?1 queue, ?2 now
SELECT limit_key, locked_until > ?2 FROM dibs_jobs INDEXED BY dibs_counted
WHERE counted = 1 AND queue = ?1 AND locked_until IS NOT NULL
