-- The claims of a worker that were asked to end and are held.
-- ?1 worker, ?2 now
SELECT id, epoch FROM dibs_jobs INDEXED BY dibs_asked WHERE worker = ?1 AND cancel_asked = 1 AND locked_until > ?2
