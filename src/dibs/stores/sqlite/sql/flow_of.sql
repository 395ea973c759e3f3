-- The flow of an unfinished step.
-- ?1 id
SELECT flow FROM dibs_jobs WHERE id = ?1
