-- Queued jobs of a queue that must not start any more, due or not.
-- ?1 queue, ?2 now, ?3 limit
SELECT expires_at, id FROM dibs_jobs INDEXED BY dibs_expiring
WHERE queue = ?1 AND expires_at <= ?2 AND ready = 1 AND locked_until IS NULL
ORDER BY expires_at, id LIMIT ?3
