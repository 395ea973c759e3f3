-- How many jobs of each of some limit keys hold valid leases.
-- ?1 queue, ?2 limit keys as a JSON array, ?3 now
SELECT wanted.value, (
    SELECT count(*) FROM dibs_jobs INDEXED BY dibs_counted
    WHERE counted = 1 AND queue = ?1 AND limit_key = wanted.value AND locked_until > ?3
)
FROM json_each(?2) AS wanted
