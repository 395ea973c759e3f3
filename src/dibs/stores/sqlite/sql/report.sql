-- Keep what a handler said about a job, if the lease of this claim on it is valid.
-- ?1 id, ?2 epoch, ?3 worker, ?4 now, ?5 report
UPDATE dibs_jobs SET report = ?5
WHERE id = ?1 AND epoch = ?2 AND worker = ?3 AND locked_until > ?4
