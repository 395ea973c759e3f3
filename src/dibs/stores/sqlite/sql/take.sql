-- Claim the first jobs of one priority, where none in line is running; the rows come in no particular order.
-- ?1 queue, ?2 priority, ?3 now, ?4 limit, ?5 tasks as a JSON array or NULL, ?6 worker, ?7 locked_until,
-- ?8 1 if they come under limits
-- {direction} is empty for a fifo queue and DESC for a lifo one.
UPDATE dibs_jobs INDEXED BY sqlite_autoindex_dibs_jobs_1
SET state = 'running', ready = 0, worker = ?6, locked_until = ?7, started_at = ?3, outcome = NULL,
    attempts = attempts + 1, epoch = epoch + 1, counted = ?8
WHERE id IN (
    SELECT id FROM dibs_jobs INDEXED BY dibs_ready
    WHERE ready = 1 AND queue = ?1 AND line = '' AND priority = ?2 AND run_at <= ?3
        AND (?5 IS NULL OR task IN (SELECT value FROM json_each(?5)))
    ORDER BY run_at {direction}, id {direction}
    LIMIT ?4
)
RETURNING run_at, id, priority, epoch, task, args, created_at, attempts, max_attempts, key, flow, step, meta
