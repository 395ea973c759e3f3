-- Take a job out of the unfinished ones, unless it is a step of a flow; the number of changes says whether it was.
-- ?1 id
DELETE FROM dibs_jobs WHERE id = ?1 AND flow IS NULL
