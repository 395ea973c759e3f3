-- Some needs of a waiting step are met; if it waits for nothing any more, put it into the line.
-- ?1 id, ?2 how many, ?3 now
UPDATE dibs_jobs
SET unmet = unmet - ?2, state = iif(unmet = ?2, 'queued', state), ready = (unmet = ?2),
    run_at = iif(unmet = ?2, max(run_at, ?3), run_at)
WHERE id = ?1 AND state = 'waiting'
