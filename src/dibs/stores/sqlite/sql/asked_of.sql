-- The claims of a worker that were asked to end and are held.
-- ?1 worker, ?2 now
SELECT asked.job, asked.epoch FROM dibs_asked AS asked CROSS JOIN dibs_jobs AS job ON job.id = asked.job
WHERE asked.worker = ?1 AND job.epoch = asked.epoch AND job.locked_until > ?2
