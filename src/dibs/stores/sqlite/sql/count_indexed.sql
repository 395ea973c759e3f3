-- What count_unfinished.sql gives, from indexes alone; right only if no running job stands in line.
-- ?1 now
SELECT queue, 'queued', count(*), count(*) FILTER (WHERE run_at > ?1), min(run_at) FILTER (WHERE run_at <= ?1)
FROM dibs_jobs INDEXED BY dibs_ready WHERE ready = 1 GROUP BY queue
UNION ALL
SELECT queue, 'running', count(*), 0, NULL
FROM dibs_jobs INDEXED BY dibs_leases WHERE locked_until IS NOT NULL GROUP BY queue
UNION ALL
SELECT queue, 'waiting', count(*), 0, NULL
FROM dibs_jobs INDEXED BY dibs_special WHERE state = 'waiting' GROUP BY queue
