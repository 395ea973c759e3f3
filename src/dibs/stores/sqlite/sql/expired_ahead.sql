-- Those among the first jobs of one priority whose leases expired.
-- ?1 queue, ?2 priority, ?3 now, ?4 limit, ?5 tasks as a JSON array or NULL
-- {direction} is empty for a fifo queue and DESC for a lifo one.
SELECT id, run_at, attempts, max_attempts, epoch, worker, started_at, cancel_asked, errors, flow, step FROM (
    SELECT * FROM dibs_jobs INDEXED BY dibs_ready
    WHERE ready = 1 AND queue = ?1 AND priority = ?2 AND run_at <= ?3
        AND (?5 IS NULL OR task IN (SELECT value FROM json_each(?5)))
        AND (locked_until IS NULL OR locked_until <= ?3)
    ORDER BY run_at {direction}, id {direction}
    LIMIT ?4
)
WHERE locked_until IS NOT NULL
