-- Those who wait for a step that will not succeed, and who wait for them.
-- ?1 id of the step
WITH RECURSIVE vain (id) AS (
    SELECT job.id FROM dibs_needs AS edge INDEXED BY dibs_needed CROSS JOIN dibs_jobs AS job
    WHERE edge.need = ?1 AND job.id = edge.step AND job.state = 'waiting'
    UNION
    SELECT job.id FROM vain CROSS JOIN dibs_needs AS edge INDEXED BY dibs_needed CROSS JOIN dibs_jobs AS job
    WHERE edge.need = vain.id AND job.id = edge.step AND job.state = 'waiting'
)
SELECT id FROM vain
