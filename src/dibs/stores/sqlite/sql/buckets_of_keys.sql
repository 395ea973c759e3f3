-- When the buckets of some limit keys are full again, as far as they are not.
-- ?1 queue, ?2 limit keys as a JSON array
SELECT bucket.key, bucket.full_at
FROM json_each(?2) AS wanted
CROSS JOIN dibs_buckets AS bucket ON bucket.kind = 'key' AND bucket.name = ?1 AND bucket.key = wanted.value
