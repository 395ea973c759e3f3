-- Put a queued job into the line of its task and limit key.
-- ?1 rowid
UPDATE dibs_jobs SET line = length(task) || ':' || task || limit_key
WHERE rowid = ?1 AND ready = 1 AND locked_until IS NULL
