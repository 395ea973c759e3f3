-- The first jobs of one priority, where none in line is running, as they will be when they are claimed: one JSON array for
-- all of them, so that SQLite makes it in one step, whatever other threads do with the interpreter.
-- ?1 queue, ?2 priority, ?3 now, ?4 limit, ?5 tasks as a JSON array or NULL
-- {direction} is empty for a fifo queue and DESC for a lifo one.
SELECT json_group_array(json_array(
    run_at, hex(id), priority, epoch + 1, task, args, created_at, attempts + 1, max_attempts, key, hex(flow), step,
    meta
))
FROM (
    SELECT * FROM dibs_jobs INDEXED BY dibs_ready
    WHERE ready = 1 AND queue = ?1 AND line = '' AND priority = ?2 AND run_at <= ?3
        AND (?5 IS NULL OR task IN (SELECT value FROM json_each(?5)))
    ORDER BY run_at {direction}, id {direction}
    LIMIT ?4
)
