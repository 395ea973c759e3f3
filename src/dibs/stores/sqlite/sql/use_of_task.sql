-- How many jobs of a task that has a limit hold valid leases, how many any, and when its bucket is full again. Looks at all
-- running jobs that come under limits.
-- ?1 task, ?2 now
SELECT
    count(*) FILTER (WHERE locked_until > ?2), count(*),
    (SELECT full_at FROM dibs_buckets WHERE kind = 'task' AND name = ?1 AND key = '')
FROM dibs_jobs INDEXED BY dibs_counted WHERE counted = 1 AND task = ?1 AND locked_until IS NOT NULL
