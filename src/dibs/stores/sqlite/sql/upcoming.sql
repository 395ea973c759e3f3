-- The next moment at which a job of the queue becomes claimable by itself: a run_at, or the end of a lease.
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
SELECT min(moment) FROM (
    SELECT (
        SELECT min(run_at) FROM dibs_jobs INDEXED BY dibs_ready
        WHERE ready = 1 AND queue = ?1 AND line = '' AND priority = step.priority AND run_at > ?2
    ) AS moment
    FROM step WHERE step.priority IS NOT NULL
    UNION ALL
    SELECT min(locked_until) FROM dibs_jobs INDEXED BY dibs_leases
    WHERE queue = ?1 AND ready = 0 AND locked_until > ?2
)
