-- Queued steps of a flow that need what has not succeeded wait for it.
-- ?1 flow
UPDATE dibs_jobs INDEXED BY dibs_steps SET state = 'waiting', ready = 0
WHERE flow = ?1 AND state = 'queued'
    AND EXISTS (SELECT 1 FROM dibs_needs INDEXED BY dibs_unmet WHERE step = dibs_jobs.id AND epoch IS NULL)
