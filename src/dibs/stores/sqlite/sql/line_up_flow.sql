-- Waiting steps of a flow that wait for nothing any more stand in line.
-- ?1 flow, ?2 now
UPDATE dibs_jobs INDEXED BY dibs_steps SET state = 'queued', ready = 1, run_at = max(run_at, ?2)
WHERE flow = ?1 AND state = 'waiting' AND unmet = 0
