-- Forget a value.
-- ?1 kind, ?2 name
DELETE FROM dibs_kept WHERE kind = ?1 AND name = ?2
