-- Before a finished step goes: keep its result for those who have it as an input.
-- ?1 id
INSERT INTO dibs_results (job, epoch, flow, result)
SELECT id, epoch, flow, result FROM dibs_history AS past
WHERE id = ?1 AND state = 'succeeded' AND EXISTS (
    SELECT 1 FROM dibs_needs INDEXED BY dibs_needed WHERE need = ?1 AND coalesce(epoch, past.epoch) = past.epoch
)
ON CONFLICT DO NOTHING
