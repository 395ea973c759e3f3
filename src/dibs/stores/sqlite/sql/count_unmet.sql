-- Count again what the steps of a flow that have not started need and have not got.
-- ?1 flow
UPDATE dibs_jobs INDEXED BY dibs_steps
SET unmet = (
    SELECT count(*) FROM dibs_needs AS edge
    WHERE edge.step = dibs_jobs.id AND edge.epoch IS NULL
        AND NOT EXISTS (SELECT 1 FROM dibs_history WHERE id = edge.need AND state = 'succeeded')
)
WHERE flow = ?1 AND state IN ('waiting', 'queued')
