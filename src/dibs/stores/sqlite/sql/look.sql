-- What a claim has to know about its queue: paused, lifo, are there leases that expired and were not seen yet,
-- are there some that were seen.
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
    )
