-- Keep when a bucket is full again.
-- ?1 kind, ?2 name, ?3 key, ?4 tat
INSERT INTO dibs_buckets (kind, name, key, tat) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (kind, name, key) DO UPDATE SET tat = ?4
