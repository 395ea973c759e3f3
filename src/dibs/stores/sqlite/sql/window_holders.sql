-- Which finished jobs keep some keys busy, as their time is not over.
-- ?1 keys: a JSON object of arrays, by queue, ?2 now
SELECT past.queue, past.key, past.id, past.state, past.created_at, past.run_at
FROM json_each(?1) AS lot
CROSS JOIN json_each(lot.value) AS wanted
CROSS JOIN dibs_history AS past INDEXED BY dibs_windows
    ON past.queue = lot.key AND past.key = wanted.value AND past.unique_until > ?2
