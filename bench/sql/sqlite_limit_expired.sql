-- The limit's claim on SQLite, first half: what a lease that expired needs to be claimed again.
-- ?1 queue, ?2 now
UPDATE dibs_jobs INDEXED BY dibs_leases SET state = 'queued', ready = 1, locked_until = NULL
WHERE queue = ?1 AND ready = 0 AND locked_until <= ?2
