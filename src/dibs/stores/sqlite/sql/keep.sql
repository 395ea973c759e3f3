-- Keep a value that is no job, unless one of a higher rank is there.
-- ?1 kind, ?2 name, ?3 rank, ?4 value
INSERT INTO dibs_kept (kind, name, rank, value) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (kind, name) DO UPDATE SET rank = ?3, value = ?4 WHERE rank <= ?3
