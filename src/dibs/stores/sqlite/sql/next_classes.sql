-- The tasks and limit keys of the first jobs of one priority: those that take.sql would take.
-- ?1 queue, ?2 priority, ?3 now, ?4 limit, ?5 tasks as a JSON array or NULL
-- {direction} is empty for a fifo queue and DESC for a lifo one.
SELECT task, limit_key FROM dibs_jobs INDEXED BY dibs_ready
WHERE ready = 1 AND queue = ?1 AND line = '' AND priority = ?2 AND run_at <= ?3
    AND (?5 IS NULL OR task IN (SELECT value FROM json_each(?5)))
ORDER BY run_at {direction}, id {direction}
LIMIT ?4
