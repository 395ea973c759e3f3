-- Drop a finished job.
-- ?1 id
DELETE FROM dibs_history WHERE id = ?1
