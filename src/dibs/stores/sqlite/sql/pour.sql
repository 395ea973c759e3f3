-- Keep when a bucket is full again.
-- ?1 kind, ?2 name, ?3 key, ?4 full_at
INSERT INTO dibs_buckets (kind, name, key, full_at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (kind, name, key) DO UPDATE SET full_at = ?4
