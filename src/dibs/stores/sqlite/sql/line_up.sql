-- Put the running jobs whose leases expired into the line, in their places. Each is moved once.
-- ?1 queue, ?2 now
UPDATE dibs_jobs INDEXED BY dibs_leases SET ready = 1
WHERE queue = ?1 AND ready = 0 AND locked_until <= ?2
