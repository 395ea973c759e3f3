-- Queued steps of a flow that need what has not succeeded wait for it.
-- ?1 flow
UPDATE dibs_jobs INDEXED BY dibs_steps SET state = 'waiting', ready = 0
WHERE flow = ?1 AND state = 'queued' AND unmet > 0
