-- Store jobs that differ in nothing but their ids and arguments, unless their ids are known; none if any finished job lies
-- between the lowest and the highest of them.
-- ?1 for each its id and, behind it, its args; ?2 queue, ?3 task, ?4 priority, ?5 run_at, ?6 created_at, ?7 max_attempts,
-- ?8 meta, ?9 the lowest id, ?10 the highest
INSERT INTO dibs_jobs (
    id, queue, task, state, ready, priority, run_at, created_at, max_attempts, meta, args
)
SELECT substr(value, 1, 16), ?2, ?3, 'queued', 1, ?4, ?5, ?6, ?7, ?8, CAST(substr(value, 17) AS TEXT)
FROM carray(?1)
WHERE NOT EXISTS (SELECT 1 FROM dibs_history WHERE id BETWEEN ?9 AND ?10)
ON CONFLICT DO NOTHING
