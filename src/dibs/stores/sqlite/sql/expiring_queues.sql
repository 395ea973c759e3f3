-- The queues that have jobs in line with an end to their time.
WITH RECURSIVE here (queue) AS (
    SELECT min(queue) FROM dibs_jobs INDEXED BY dibs_expiring WHERE expires_at IS NOT NULL AND ready = 1
    UNION ALL
    SELECT (
        SELECT min(queue) FROM dibs_jobs INDEXED BY dibs_expiring
        WHERE expires_at IS NOT NULL AND ready = 1 AND queue > here.queue
    )
    FROM here WHERE here.queue IS NOT NULL
)
SELECT queue FROM here WHERE queue IS NOT NULL
