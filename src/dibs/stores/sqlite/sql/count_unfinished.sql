-- Per queue and state: how many, how many of them are not due yet, and the oldest run_at that is due.
-- ?1 now
SELECT queue, state, count(*), count(*) FILTER (WHERE run_at > ?1), min(run_at) FILTER (WHERE run_at <= ?1)
FROM dibs_jobs GROUP BY queue, state
