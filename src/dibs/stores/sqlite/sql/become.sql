-- A queued job becomes what was asked for now; how it was settled is forgotten.
-- ?1 task, ?2 priority, ?3 run_at, ?4 max_attempts, ?5 unique_until, ?6 expires_at, ?7 limit_key, ?8 meta, ?9 args, ?10 id
-- (plain ?, for other drivers)
UPDATE dibs_jobs
SET task = ?, priority = ?, run_at = ?, max_attempts = ?, unique_until = ?, expires_at = ?, limit_key = ?, meta = ?,
    args = ?, attempts = 0, outcome = NULL, line = ''
WHERE id = ?
