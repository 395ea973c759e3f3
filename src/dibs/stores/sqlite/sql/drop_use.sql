-- Forget how many jobs are held under a limit.
-- ?1 kind, ?2 name
DELETE FROM dibs_use WHERE kind = ?1 AND name = ?2
