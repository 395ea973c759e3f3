-- What walk.sql gives, without the jobs that limits hold back.
-- ?1 queue, ?2 priority, ?3 now, ?4 run_at and ?5 id of the place, ?6 tasks as a JSON array or NULL, ?7 limit,
-- ?8 full tasks and ?9 full limit keys as JSON arrays
-- {direction} is empty for a fifo queue and DESC for a lifo one, {beyond} says what is due and behind the place.
SELECT id, run_at, attempts, max_attempts, epoch, worker, started_at, cancel_asked, errors, flow, step, expires_at,
    rowid, priority, task, limit_key, locked_until, created_at, key, meta, args
FROM dibs_jobs INDEXED BY dibs_ready
WHERE ready = 1 AND queue = ?1 AND line = '' AND priority = ?2 AND {beyond}
    AND (?6 IS NULL OR task IN (SELECT value FROM json_each(?6)))
    AND task NOT IN (SELECT value FROM json_each(?8))
    AND (limit_key = '' OR limit_key NOT IN (SELECT value FROM json_each(?9)))
    AND (locked_until IS NULL OR locked_until <= ?3)
ORDER BY run_at {direction}, id {direction}
LIMIT ?7
