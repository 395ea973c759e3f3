-- Drop a flow that has no job left.
-- ?1 flow
DELETE FROM dibs_flows
WHERE id = ?1
    AND NOT EXISTS (SELECT 1 FROM dibs_jobs WHERE flow = ?1)
    AND NOT EXISTS (SELECT 1 FROM dibs_history WHERE flow = ?1)
