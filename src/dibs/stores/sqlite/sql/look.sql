-- What a claim has to know about its queue: paused, lifo, are there leases that expired and were not seen yet,
-- are there some that were seen, and the first priority that has jobs in line, due or not.
-- ?1 queue, ?2 now
SELECT
    coalesce((SELECT paused FROM dibs_queues WHERE name = ?1), 0),
    coalesce((SELECT "order" = 'lifo' FROM dibs_queues WHERE name = ?1), 0),
    EXISTS (
        SELECT 1 FROM dibs_jobs INDEXED BY dibs_leases
        WHERE queue = ?1 AND ready = 0 AND locked_until <= ?2
    ),
    EXISTS (
        SELECT 1 FROM dibs_jobs INDEXED BY dibs_leases
        WHERE queue = ?1 AND ready = 1 AND locked_until <= ?2
    ),
    (SELECT min(priority) FROM dibs_jobs INDEXED BY dibs_ready WHERE ready = 1 AND queue = ?1)
