-- The limit's claim on SQLite, second half: on the table of dibs. It knows nothing of pauses, lifo, tasks and
-- priorities with future jobs.
-- ?1 queue, ?2 now, ?3 limit, ?4 worker, ?5 locked_until
UPDATE dibs_jobs
SET state = 'running', ready = 0, worker = ?4, locked_until = ?5, started_at = ?2, outcome = NULL,
    attempts = attempts + 1, epoch = epoch + 1
WHERE rowid IN (
    SELECT rowid FROM dibs_jobs INDEXED BY dibs_ready
    WHERE ready = 1 AND queue = ?1 AND run_at <= ?2
    ORDER BY priority, run_at, id
    LIMIT ?3
)
RETURNING priority, run_at, id, epoch, task, args, created_at, attempts, max_attempts, locked_until, key, meta
