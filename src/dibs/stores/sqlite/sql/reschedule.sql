-- Set when a job is due.
-- ?1 id, ?2 run_at
UPDATE dibs_jobs SET run_at = ?2 WHERE id = ?1
