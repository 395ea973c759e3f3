-- Set the order of a queue, and how its jobs age.
-- ?1 name, ?2 order, ?3 ageing or NULL
INSERT INTO dibs_queues (name, "order", ageing) VALUES (?1, ?2, ?3)
ON CONFLICT (name) DO UPDATE SET "order" = ?2, ageing = ?3
