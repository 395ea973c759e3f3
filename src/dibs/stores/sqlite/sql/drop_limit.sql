-- Forget a limit.
-- ?1 kind, ?2 name
DELETE FROM dibs_limits WHERE kind = ?1 AND name = ?2
