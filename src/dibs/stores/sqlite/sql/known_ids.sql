-- Which of some ids are those of jobs.
-- ?1 ids in hexadecimal digits, as a JSON array
SELECT wanted.id
FROM (SELECT unhex(value) AS id FROM json_each(?1)) AS wanted
WHERE EXISTS (SELECT 1 FROM dibs_jobs WHERE id = wanted.id) OR EXISTS (SELECT 1 FROM dibs_history WHERE id = wanted.id)
