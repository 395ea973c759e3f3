-- Set a queued job aside.
-- ?1 rowid
UPDATE dibs_jobs SET ready = 2 WHERE rowid = ?1 AND ready = 1 AND locked_until IS NULL
