-- Every queue, line and priority with jobs in it, in this order. Steps from one to the next, however long they are.
-- ?1 limit
WITH RECURSIVE lane (first) AS (
    SELECT (
        SELECT rowid FROM dibs_jobs INDEXED BY dibs_ready WHERE ready = 1 ORDER BY queue, line, priority LIMIT 1
    )
    UNION ALL
    SELECT coalesce(
        (
            SELECT rowid FROM dibs_jobs INDEXED BY dibs_ready
            WHERE ready = 1 AND queue = here.queue AND line = here.line AND priority > here.priority
            ORDER BY priority LIMIT 1
        ),
        (
            SELECT rowid FROM dibs_jobs INDEXED BY dibs_ready
            WHERE ready = 1 AND queue = here.queue AND line > here.line ORDER BY line, priority LIMIT 1
        ),
        (
            SELECT rowid FROM dibs_jobs INDEXED BY dibs_ready WHERE ready = 1 AND queue > here.queue
            ORDER BY queue, line, priority LIMIT 1
        )
    )
    FROM lane CROSS JOIN dibs_jobs AS here ON here.rowid = lane.first
    LIMIT ?1
)
SELECT here.queue, here.line, here.priority FROM lane CROSS JOIN dibs_jobs AS here ON here.rowid = lane.first
