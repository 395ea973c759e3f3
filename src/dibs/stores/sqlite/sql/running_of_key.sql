-- How many jobs of a limit key hold valid leases.
-- ?1 queue, ?2 limit key, ?3 now
SELECT count(*) FROM dibs_jobs INDEXED BY dibs_key_leases
WHERE queue = ?1 AND limit_key = ?2 AND limit_key <> '' AND locked_until > ?3
