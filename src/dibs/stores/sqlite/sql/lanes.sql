-- The priorities that have due jobs in line.
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
SELECT priority FROM step
WHERE priority IS NOT NULL AND EXISTS (
    SELECT 1 FROM dibs_jobs INDEXED BY dibs_ready
    WHERE ready = 1 AND queue = ?1 AND line = '' AND priority = step.priority AND run_at <= ?2
)
