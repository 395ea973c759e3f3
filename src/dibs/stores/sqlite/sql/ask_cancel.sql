-- Ask a running job to end.
-- ?1 id
UPDATE dibs_jobs SET cancel_asked = 1 WHERE id = ?1
