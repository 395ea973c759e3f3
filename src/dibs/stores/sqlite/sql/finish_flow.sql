-- Finish a flow if none of its steps is unfinished; one that was stopped keeps the state that it has since.
-- ?1 flow, ?2 now
UPDATE dibs_flows
SET finished_at = ?2, state = CASE
    WHEN state <> 'running' THEN state
    WHEN EXISTS (SELECT 1 FROM dibs_history WHERE flow = ?1 AND state = 'failed') THEN 'failed'
    WHEN EXISTS (SELECT 1 FROM dibs_history WHERE flow = ?1 AND state = 'cancelled') THEN 'cancelled'
    ELSE 'succeeded'
END
WHERE id = ?1 AND finished_at IS NULL AND NOT EXISTS (SELECT 1 FROM dibs_jobs WHERE flow = ?1)
