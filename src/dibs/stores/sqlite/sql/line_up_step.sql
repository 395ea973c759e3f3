-- Put a step that waits for nothing any more into the line.
-- ?1 id, ?2 now
UPDATE dibs_jobs SET state = 'queued', ready = 1, run_at = max(run_at, ?2)
WHERE id = ?1 AND state = 'waiting' AND NOT EXISTS (
    SELECT 1 FROM dibs_needs INDEXED BY dibs_unmet WHERE step = ?1 AND epoch IS NULL
)
