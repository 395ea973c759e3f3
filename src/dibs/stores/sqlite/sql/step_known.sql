-- Does the flow have a step of this name?
-- ?1 flow, ?2 name
SELECT 1 FROM dibs_jobs INDEXED BY dibs_steps WHERE flow = ?1 AND step = ?2
UNION ALL
SELECT 1 FROM dibs_history INDEXED BY dibs_past_steps
WHERE flow = ?1 AND state IN ('succeeded', 'failed', 'cancelled') AND step = ?2
