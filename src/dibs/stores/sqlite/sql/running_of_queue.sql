-- How many jobs of a queue hold valid leases.
-- ?1 queue, ?2 now
SELECT count(*) FROM dibs_jobs INDEXED BY dibs_leases WHERE queue = ?1 AND ready IN (0, 1) AND locked_until > ?2
