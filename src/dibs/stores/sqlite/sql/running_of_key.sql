-- How many jobs of a limit key hold valid leases. Steps from task to task.
-- ?1 queue, ?2 limit key, ?3 now
WITH RECURSIVE step (task) AS (
    SELECT min(task) FROM dibs_jobs INDEXED BY dibs_counted WHERE counted = 1 AND locked_until IS NOT NULL
    UNION ALL
    SELECT (
        SELECT min(task) FROM dibs_jobs INDEXED BY dibs_counted
        WHERE counted = 1 AND locked_until IS NOT NULL AND task > step.task
    )
    FROM step WHERE step.task IS NOT NULL
)
SELECT ifnull(sum((
    SELECT count(*) FROM dibs_jobs INDEXED BY dibs_counted
    WHERE counted = 1 AND task = step.task AND queue = ?1 AND limit_key = ?2 AND locked_until > ?3
)), 0)
FROM step WHERE step.task IS NOT NULL
