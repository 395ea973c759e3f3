-- When a bucket is full again.
-- ?1 kind, ?2 name, ?3 key
SELECT full_at FROM dibs_buckets WHERE kind = ?1 AND name = ?2 AND key = ?3
