-- The running steps of a flow were asked to end: their workers shall know.
-- ?1 flow
INSERT INTO dibs_asked (worker, job, epoch)
SELECT worker, id, epoch FROM dibs_jobs INDEXED BY dibs_steps WHERE flow = ?1 AND state = 'running'
ON CONFLICT (worker, job) DO UPDATE SET epoch = excluded.epoch
