-- Keep how many jobs are held under a limit, at most.
-- ?1 kind, ?2 name, ?3 key, ?4 held
INSERT INTO dibs_use (kind, name, key, held) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (kind, name, key) DO UPDATE SET held = ?4
