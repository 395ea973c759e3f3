-- How many jobs of a queue, line and priority are due, up to a limit, and since when the first one is.
-- ?1 queue, ?2 line, ?3 priority, ?4 now, ?5 limit
SELECT count(*), min(run_at) FROM (
    SELECT run_at FROM dibs_jobs INDEXED BY dibs_ready
    WHERE ready = 1 AND queue = ?1 AND line = ?2 AND priority = ?3 AND run_at <= ?4 ORDER BY run_at LIMIT ?5
)
