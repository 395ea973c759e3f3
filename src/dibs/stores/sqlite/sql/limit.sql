-- One limit.
-- ?1 kind, ?2 name
SELECT concurrency, starts, per, rank FROM dibs_limits WHERE kind = ?1 AND name = ?2
