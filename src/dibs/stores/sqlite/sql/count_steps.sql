-- The steps of a flow, counted by state.
-- ?1 flow
SELECT state, count(*) FROM dibs_jobs INDEXED BY dibs_steps WHERE flow = ?1 GROUP BY state
UNION ALL
SELECT state, count(*) FROM dibs_history INDEXED BY dibs_past_steps WHERE flow = ?1 GROUP BY state
