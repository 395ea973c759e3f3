-- Jobs that are running, that wait, and that ended, by queue and state: of each state some only, the newest of what ended.
-- Those that are running and stand in line are counted as 'in line', besides.
-- ?1 limit
SELECT queue, 'running', count(*) FROM (
    SELECT queue FROM dibs_jobs INDEXED BY dibs_leases WHERE locked_until IS NOT NULL LIMIT ?1
) GROUP BY queue
UNION ALL
SELECT queue, 'in line', count(*) FROM (
    SELECT queue FROM dibs_jobs INDEXED BY dibs_leases WHERE locked_until IS NOT NULL AND ready = 1 LIMIT ?1
) GROUP BY queue
UNION ALL
SELECT queue, 'waiting', count(*) FROM (
    SELECT queue FROM dibs_jobs INDEXED BY dibs_special WHERE state = 'waiting' LIMIT ?1
) GROUP BY queue
UNION ALL
SELECT queue, 'succeeded', count(*) FROM (
    SELECT queue FROM dibs_history INDEXED BY dibs_finished WHERE state = 'succeeded' ORDER BY finished_at DESC LIMIT ?1
) GROUP BY queue
UNION ALL
SELECT queue, 'failed', count(*) FROM (
    SELECT queue FROM dibs_history INDEXED BY dibs_finished WHERE state = 'failed' ORDER BY finished_at DESC LIMIT ?1
) GROUP BY queue
UNION ALL
SELECT queue, 'cancelled', count(*) FROM (
    SELECT queue FROM dibs_history INDEXED BY dibs_finished WHERE state = 'cancelled' ORDER BY finished_at DESC LIMIT ?1
) GROUP BY queue
