-- Put jobs that were set aside and must not start any more back into the queue's own line: they end in their places.
-- ?1 queue, ?2 now
UPDATE dibs_jobs INDEXED BY dibs_expiring SET line = ''
WHERE queue = ?1 AND expires_at <= ?2 AND ready = 1 AND line <> ''
