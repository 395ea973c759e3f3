-- Forget limit keys that hold nothing: they are what one is that nobody knows of.
DELETE FROM dibs_use
WHERE kind = 'key' AND (name, key) NOT IN (
    SELECT queue, limit_key FROM dibs_jobs INDEXED BY dibs_counted WHERE counted = 1 AND locked_until IS NOT NULL
)
