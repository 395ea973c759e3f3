-- Set the priority of a job.
-- ?1 id, ?2 priority
UPDATE dibs_jobs SET priority = ?2 WHERE id = ?1
