-- What walk.sql gives, without the jobs that limits hold back, except those that have to end.
-- ?1 queue, ?2 priority, ?3 now, ?4 run_at and ?5 id of the place, ?6 tasks as a JSON array or NULL, ?7 limit,
-- ?8 full tasks and ?9 full limit keys as JSON arrays, ?10 may there be some that have to end?
-- {direction} is empty for a fifo queue and DESC for a lifo one, {behind} is > or <.
SELECT id, run_at, attempts, max_attempts, epoch, worker, started_at, cancel_asked, errors, flow, step, expires_at,
    rowid, priority, task, limit_key, locked_until, created_at, key, meta, args
FROM dibs_jobs INDEXED BY dibs_ready
WHERE ready = 1 AND queue = ?1 AND line = '' AND priority = ?2 AND run_at <= ?3 AND (run_at, id) {behind} (?4, ?5)
    AND (?6 IS NULL OR task IN (SELECT value FROM json_each(?6)))
    AND (
        (
            task NOT IN (SELECT value FROM json_each(?8))
            AND (limit_key = '' OR limit_key NOT IN (SELECT value FROM json_each(?9)))
        )
        OR (?10 AND (locked_until IS NOT NULL OR expires_at <= ?3))
    )
    AND (locked_until IS NULL OR locked_until <= ?3)
ORDER BY run_at {direction}, id {direction}
LIMIT ?7
