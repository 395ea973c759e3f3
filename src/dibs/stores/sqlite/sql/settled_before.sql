-- Was this claim settled like this, and did nothing happen to the job since?
-- ?1 id, ?2 epoch, ?3 worker, ?4 outcome
SELECT 1 FROM dibs_jobs WHERE id = ?1 AND epoch = ?2 AND worker = ?3 AND outcome = ?4
UNION ALL
SELECT 1 FROM dibs_history WHERE id = ?1 AND epoch = ?2 AND worker = ?3 AND outcome = ?4
