-- How many jobs of some limit keys are held, at most; without those that have none.
-- ?1 queue, ?2 limit keys as a JSON array
SELECT known.key, known.held
FROM json_each(?2) AS wanted
CROSS JOIN dibs_use AS known ON known.kind = 'key' AND known.name = ?1 AND known.key = wanted.value
