-- Pause or resume a queue.
-- ?1 name, ?2 paused
INSERT INTO dibs_queues (name, paused) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET paused = ?2
