-- What decides which limits a job comes under.
-- ?1 id
SELECT queue, task, limit_key FROM dibs_jobs WHERE id = ?1
UNION ALL
SELECT queue, task, limit_key FROM dibs_history WHERE id = ?1
