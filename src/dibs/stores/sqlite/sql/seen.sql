-- Record that a worker was seen.
-- ?1 name, ?2 now, ?3 info or NULL to keep what is known
INSERT INTO dibs_workers (name, seen_at, info) VALUES (?1, ?2, coalesce(?3, '{}'))
ON CONFLICT (name) DO UPDATE SET seen_at = ?2, info = coalesce(?3, info)
