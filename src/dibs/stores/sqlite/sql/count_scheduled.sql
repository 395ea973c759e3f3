-- How many jobs of a queue, line and priority are not due yet, up to a limit.
-- ?1 queue, ?2 line, ?3 priority, ?4 now, ?5 limit
SELECT count(*) FROM (
    SELECT 1 FROM dibs_jobs INDEXED BY dibs_ready
    WHERE ready = 1 AND queue = ?1 AND line = ?2 AND priority = ?3 AND run_at > ?4 LIMIT ?5
)
