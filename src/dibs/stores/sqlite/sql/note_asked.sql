-- A running job was asked to end: its worker shall know.
-- ?1 id
INSERT INTO dibs_asked (worker, job, epoch)
SELECT worker, id, epoch FROM dibs_jobs WHERE id = ?1 AND state = 'running'
ON CONFLICT (worker, job) DO UPDATE SET epoch = excluded.epoch
