-- The first priority behind a given one that has a due job. Steps from priority to priority, so that the future
-- jobs of one are never read to get to the due jobs of the next.
-- ?1 queue, ?2 the priority before, ?3 now
WITH RECURSIVE step (priority) AS (
    SELECT min(priority) FROM dibs_jobs INDEXED BY dibs_ready
    WHERE ready = 1 AND queue = ?1 AND line = '' AND priority > ?2
    UNION ALL
    SELECT (
        SELECT min(priority) FROM dibs_jobs INDEXED BY dibs_ready
        WHERE ready = 1 AND queue = ?1 AND line = '' AND priority > step.priority
    )
    FROM step WHERE step.priority IS NOT NULL
)
SELECT priority FROM step
WHERE priority IS NOT NULL AND EXISTS (
    SELECT 1 FROM dibs_jobs INDEXED BY dibs_ready
    WHERE ready = 1 AND queue = ?1 AND line = '' AND priority = step.priority AND run_at <= ?3
)
LIMIT 1
