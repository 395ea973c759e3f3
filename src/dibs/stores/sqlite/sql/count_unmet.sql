-- Count again what the steps of a flow that have not started need and have not got.
-- ?1 flow
UPDATE dibs_jobs INDEXED BY dibs_steps
SET unmet = (SELECT count(*) FROM dibs_needs WHERE step = dibs_jobs.id AND epoch IS NULL)
WHERE flow = ?1 AND state IN ('waiting', 'queued')
