-- Was this claim copied to the history a moment ago, and not yet taken out of the unfinished jobs?
-- ?1 id, ?2 epoch, ?3 worker
SELECT 1 FROM dibs_jobs
WHERE id = ?1 AND epoch = ?2 AND worker = ?3 AND EXISTS (SELECT 1 FROM dibs_history WHERE id = ?1)
