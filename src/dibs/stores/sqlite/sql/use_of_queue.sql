-- How many jobs of a queue hold valid leases, how many any, and when its bucket is full again.
-- ?1 queue, ?2 now
SELECT
    count(*) FILTER (WHERE locked_until > ?2), count(*),
    (SELECT full_at FROM dibs_buckets WHERE kind = 'queue' AND name = ?1 AND key = '')
FROM dibs_jobs INDEXED BY dibs_leases WHERE queue = ?1 AND ready IN (0, 1) AND locked_until IS NOT NULL
