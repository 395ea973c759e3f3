-- Everything that is kept of a kind, by name.
-- ?1 kind
SELECT name, value FROM dibs_kept WHERE kind = ?1 ORDER BY name
