-- How many jobs of each of some limit keys hold valid leases, and when their buckets are full again.
-- ?1 queue, ?2 limit keys as a JSON array, ?3 now
SELECT wanted.value, (
    SELECT count(*) FROM dibs_jobs INDEXED BY dibs_counted
    WHERE counted = 1 AND queue = ?1 AND limit_key = wanted.value AND locked_until > ?3
), (
    SELECT full_at FROM dibs_buckets WHERE kind = 'key' AND name = ?1 AND key = wanted.value
)
FROM json_each(?2) AS wanted
