-- Is there a job with this id?
-- ?1 id, ?2 id again (plain ?, for other drivers)
SELECT 1 FROM dibs_jobs WHERE id = ? UNION ALL SELECT 1 FROM dibs_history WHERE id = ?
