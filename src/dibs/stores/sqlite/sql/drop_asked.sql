-- Forget claims that were asked to end and are over.
DELETE FROM dibs_asked WHERE NOT EXISTS (
    SELECT 1 FROM dibs_jobs WHERE id = dibs_asked.job AND epoch = dibs_asked.epoch AND state = 'running'
)
