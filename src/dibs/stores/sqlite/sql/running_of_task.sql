-- How many jobs of a task that has a limit hold valid leases.
-- ?1 task, ?2 now
SELECT count(*) FROM dibs_jobs INDEXED BY dibs_task_leases WHERE task = ?1 AND counted = 1 AND locked_until > ?2
