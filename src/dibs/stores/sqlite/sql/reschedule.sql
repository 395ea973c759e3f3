-- Set when a job is due. It stands in line again if it was set aside: those are due.
-- ?1 id, ?2 run_at
UPDATE dibs_jobs SET run_at = ?2, line = '' WHERE id = ?1
