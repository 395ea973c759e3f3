-- Take a step out of the unfinished ones; gives its flow.
-- ?1 id
DELETE FROM dibs_jobs WHERE id = ?1 RETURNING id, flow
