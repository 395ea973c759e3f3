-- Set the order of a queue.
-- ?1 name, ?2 order
INSERT INTO dibs_queues (name, "order") VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET "order" = ?2
