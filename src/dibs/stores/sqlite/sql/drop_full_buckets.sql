-- Forget buckets that are full: they are what one is that nobody knows of.
-- ?1 now
DELETE FROM dibs_buckets INDEXED BY dibs_full_buckets WHERE full_at <= ?1
