-- The steps of a flow that have not started.
-- ?1 flow
SELECT id FROM dibs_jobs INDEXED BY dibs_steps WHERE flow = ?1 AND state IN ('waiting', 'queued')
