-- Ask the running steps of a flow to end.
-- ?1 flow
UPDATE dibs_jobs INDEXED BY dibs_steps SET cancel_asked = 1 WHERE flow = ?1 AND state = 'running'
