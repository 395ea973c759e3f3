-- Steps of a flow that have not started need what is there, and have what is gone.
-- ?1 flow
UPDATE dibs_needs
SET epoch = CASE
    WHEN EXISTS (SELECT 1 FROM dibs_jobs WHERE id = dibs_needs.need AND flow = ?1) THEN NULL
    WHEN EXISTS (SELECT 1 FROM dibs_history WHERE id = dibs_needs.need AND flow = ?1) THEN NULL
    ELSE 0
END
WHERE step IN (SELECT id FROM dibs_jobs INDEXED BY dibs_steps WHERE flow = ?1 AND state IN ('waiting', 'queued'))
