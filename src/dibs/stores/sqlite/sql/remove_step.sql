-- Take a step out of the unfinished ones.
-- ?1 id
DELETE FROM dibs_jobs WHERE id = ?1
