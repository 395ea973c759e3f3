-- The lines of a queue that hold jobs which were set aside, by priority. Steps from one to the next.
-- ?1 queue
WITH RECURSIVE class (first) AS (
    SELECT (
        SELECT rowid FROM dibs_jobs INDEXED BY dibs_ready WHERE ready = 1 AND queue = ?1 AND line > ''
        ORDER BY line, priority LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT rowid FROM dibs_jobs INDEXED BY dibs_ready
        WHERE ready = 1 AND queue = ?1 AND (line, priority) > (here.line, here.priority)
        ORDER BY line, priority LIMIT 1
    )
    FROM class CROSS JOIN dibs_jobs AS here ON here.rowid = class.first
)
SELECT here.line, here.priority, here.task, here.limit_key
FROM class CROSS JOIN dibs_jobs AS here ON here.rowid = class.first
