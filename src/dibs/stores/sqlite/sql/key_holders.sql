-- Which unfinished jobs keep some keys busy.
-- ?1 keys: a JSON object of arrays, by queue
SELECT job.queue, job.key, job.id, job.state, job.created_at, job.run_at
FROM json_each(?1) AS lot
CROSS JOIN json_each(lot.value) AS wanted
CROSS JOIN dibs_jobs AS job INDEXED BY dibs_keys ON job.queue = lot.key AND job.key = wanted.value
