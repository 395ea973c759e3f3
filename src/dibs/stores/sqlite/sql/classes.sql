-- The task, limit key and priority of jobs of a queue that were set aside. Steps from one to the next.
-- ?1 queue
WITH RECURSIVE class (first) AS (
    SELECT (
        SELECT rowid FROM dibs_jobs INDEXED BY dibs_aside WHERE ready = 2 AND queue = ?1
        ORDER BY task, limit_key, priority LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT rowid FROM dibs_jobs INDEXED BY dibs_aside
        WHERE ready = 2 AND queue = ?1
            AND (task, limit_key, priority) > (here.task, here.limit_key, here.priority)
        ORDER BY task, limit_key, priority LIMIT 1
    )
    FROM class CROSS JOIN dibs_jobs AS here ON here.rowid = class.first
)
SELECT here.task, here.limit_key, here.priority
FROM class CROSS JOIN dibs_jobs AS here ON here.rowid = class.first
