-- How many jobs are held under a limit of a queue or of a task, at most; and when its bucket is full again.
-- ?1 kind, ?2 name
SELECT
    (SELECT held FROM dibs_use WHERE kind = ?1 AND name = ?2 AND key = ''),
    (SELECT full_at FROM dibs_buckets WHERE kind = ?1 AND name = ?2 AND key = '')
