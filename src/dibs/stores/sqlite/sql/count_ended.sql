-- How many jobs of a state ended since then, up to a limit.
-- :state, :since, :limit
SELECT count(*) FROM (
    SELECT 1 FROM dibs_history INDEXED BY dibs_finished WHERE state = :state AND finished_at >= :since LIMIT :limit
)
