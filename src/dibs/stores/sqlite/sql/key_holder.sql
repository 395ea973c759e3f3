-- Which job keeps the key of the queue busy: the unfinished one, or else the newest whose time is not over.
-- ?1 queue, ?2 key, ?3 queue, ?4 key, ?5 now (plain ?, for other drivers)
SELECT id, state, created_at, run_at FROM dibs_jobs WHERE queue = ? AND key = ?
UNION ALL
SELECT * FROM (
    SELECT id, state, created_at, run_at FROM dibs_history INDEXED BY dibs_windows
    WHERE queue = ? AND key = ? AND unique_until > ?
    ORDER BY id DESC LIMIT 1
)
