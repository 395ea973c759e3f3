-- Set a limit.
-- ?1 kind, ?2 name, ?3 concurrency, ?4 starts, ?5 per, ?6 rank
INSERT INTO dibs_limits (kind, name, concurrency, starts, per, rank) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (kind, name) DO UPDATE SET concurrency = ?3, starts = ?4, per = ?5, rank = ?6
