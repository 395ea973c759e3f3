-- Put the first jobs of a class that were set aside back into the line.
-- ?1 queue, ?2 task, ?3 limit key, ?4 priority, ?5 limit
-- {direction} is empty for a fifo queue and DESC for a lifo one.
UPDATE dibs_jobs SET ready = 1 WHERE rowid IN (
    SELECT rowid FROM dibs_jobs INDEXED BY dibs_aside
    WHERE ready = 2 AND queue = ?1 AND task = ?2 AND limit_key = ?3 AND priority = ?4
    ORDER BY run_at {direction}, id {direction}
    LIMIT ?5
)
