-- Is a running job asked to end?
-- ?1 id
SELECT cancel_asked FROM dibs_jobs WHERE id = ?1
