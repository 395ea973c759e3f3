-- Put the first jobs that were set aside into another line back into the queue's own.
-- ?1 queue, ?2 line, ?3 priority, ?4 limit
-- {direction} is empty for a fifo queue and DESC for a lifo one.
UPDATE dibs_jobs INDEXED BY sqlite_autoindex_dibs_jobs_1 SET line = '' WHERE id IN (
    SELECT id FROM dibs_jobs INDEXED BY dibs_ready
    WHERE ready = 1 AND queue = ?1 AND line = ?2 AND priority = ?3
    ORDER BY run_at {direction}, id {direction}
    LIMIT ?4
)
