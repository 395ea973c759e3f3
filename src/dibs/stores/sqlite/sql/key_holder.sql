-- Which unfinished job of the queue has the key?
-- ?1 queue, ?2 key (plain ?, for other drivers)
SELECT id FROM dibs_jobs WHERE queue = ? AND key = ?
