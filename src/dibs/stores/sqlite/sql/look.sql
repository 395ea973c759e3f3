-- What a claim has to know about its queue: paused, lifo, how it ages; are there leases that expired and were not seen
-- yet, are there some that were seen, jobs that must not start any more, limits, jobs that were set aside; and the first
-- priority that has jobs in line, due or not.
-- ?1 queue, ?2 now
SELECT
    ifnull(here.paused, 0),
    ifnull(here."order" = 'lifo', 0),
    here.ageing,
    EXISTS (
        SELECT 1 FROM dibs_jobs INDEXED BY dibs_leases
        WHERE queue = ?1 AND ready = 0 AND locked_until <= ?2
    ),
    EXISTS (
        SELECT 1 FROM dibs_jobs INDEXED BY dibs_leases
        WHERE queue = ?1 AND ready = 1 AND locked_until <= ?2
    ),
    EXISTS (
        SELECT 1 FROM dibs_jobs INDEXED BY dibs_expiring
        WHERE queue = ?1 AND expires_at <= ?2 AND ready = 1
    ),
    EXISTS (SELECT 1 FROM dibs_limits) AND EXISTS (
        SELECT 1 FROM dibs_limits WHERE kind = 'task' OR (kind IN ('key', 'queue') AND name = ?1)
    ),
    EXISTS (SELECT 1 FROM dibs_jobs INDEXED BY dibs_ready WHERE ready = 1 AND queue = ?1 AND line > ''),
    (SELECT min(priority) FROM dibs_jobs INDEXED BY dibs_ready WHERE ready = 1 AND queue = ?1 AND line = '')
FROM (SELECT 1) LEFT JOIN dibs_queues AS here ON here.name = ?1
