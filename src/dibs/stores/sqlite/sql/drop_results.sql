-- Drop the kept results of a flow that no step has as an input.
-- ?1 flow
DELETE FROM dibs_results
WHERE flow = ?1 AND NOT EXISTS (
    SELECT 1 FROM dibs_needs INDEXED BY dibs_needed
    WHERE need = dibs_results.job AND epoch = dibs_results.epoch
)
