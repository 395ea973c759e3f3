-- Those who wait for a step, with the place of that need among theirs.
-- ?1 id of the step
SELECT edge.step, edge.place, edge.need FROM dibs_needs AS edge INDEXED BY dibs_needed CROSS JOIN dibs_jobs AS job
WHERE edge.need = ?1 AND edge.epoch IS NULL AND job.id = edge.step AND job.state = 'waiting'
