-- Store jobs, unless their ids are known or unfinished jobs have their keys; no finished one keeps a key busy, that was looked
-- at.
-- ?1 a JSON array with an array for each: id in hexadecimal digits, queue, task, priority, run_at, created_at, max_attempts,
-- key, unique_until, expires_at, limit_key, meta, args
INSERT INTO dibs_jobs (
    id, queue, task, state, ready, priority, run_at, created_at, max_attempts, key, unique_until, expires_at, limit_key,
    meta, args
)
SELECT
    unhex(value ->> 0), value ->> 1, value ->> 2, 'queued', 1, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
    value ->> 8, value ->> 9, value ->> 10, value ->> 11, value ->> 12
FROM json_each(?1)
WHERE NOT EXISTS (SELECT 1 FROM dibs_history WHERE id = unhex(value ->> 0))
ON CONFLICT DO NOTHING
