-- May the queue have due work? A paused one has not. A claim may still find that somebody else took it, or that a limit
-- holds it back.
-- ?1 queue, ?2 now
WITH RECURSIVE step (priority) AS (
    SELECT min(priority) FROM dibs_jobs INDEXED BY dibs_ready WHERE ready = 1 AND queue = ?1 AND line = ''
    UNION ALL
    SELECT (
        SELECT min(priority) FROM dibs_jobs INDEXED BY dibs_ready
        WHERE ready = 1 AND queue = ?1 AND line = '' AND priority > step.priority
    )
    FROM step WHERE step.priority IS NOT NULL
)
SELECT NOT coalesce((SELECT paused FROM dibs_queues WHERE name = ?1), 0) AND (
    EXISTS (
        SELECT 1 FROM dibs_jobs INDEXED BY dibs_leases
        WHERE queue = ?1 AND ready = 0 AND locked_until <= ?2
    )
    OR EXISTS (SELECT 1 FROM dibs_jobs INDEXED BY dibs_ready WHERE ready = 1 AND queue = ?1 AND line > '')
    OR EXISTS (
        SELECT 1 FROM step WHERE priority IS NOT NULL AND EXISTS (
            SELECT 1 FROM dibs_jobs INDEXED BY dibs_ready
            WHERE ready = 1 AND queue = ?1 AND line = '' AND priority = step.priority AND run_at <= ?2
        )
    )
)
