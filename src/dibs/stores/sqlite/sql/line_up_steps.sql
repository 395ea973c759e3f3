-- Put those who waited for a step, and now for none any more, into the line.
-- ?1 id of the step, ?2 now
UPDATE dibs_jobs SET state = 'queued', ready = 1, run_at = max(run_at, ?2)
WHERE id IN (SELECT step FROM dibs_needs INDEXED BY dibs_needed WHERE need = ?1)
    AND state = 'waiting'
    AND NOT EXISTS (
        SELECT 1 FROM dibs_needs INDEXED BY dibs_unmet WHERE step = dibs_jobs.id AND epoch IS NULL
    )
