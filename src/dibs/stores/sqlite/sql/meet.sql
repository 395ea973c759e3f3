-- A step succeeded: that need of those who wait for it is met.
-- ?1 id of the step, ?2 its epoch
UPDATE dibs_needs INDEXED BY dibs_needed SET epoch = ?2
WHERE need = ?1 AND epoch IS NULL
    AND EXISTS (SELECT 1 FROM dibs_jobs WHERE id = dibs_needs.step AND state = 'waiting')
