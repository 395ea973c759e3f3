-- Forget what the rate of a limit has let through.
-- ?1 kind, ?2 name
DELETE FROM dibs_buckets WHERE kind = ?1 AND name = ?2
