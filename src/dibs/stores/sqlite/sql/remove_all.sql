-- Take jobs out of the unfinished ones, unless they are steps of flows; the number of changes says how many were not.
-- ?1 their ids
DELETE FROM dibs_jobs INDEXED BY sqlite_autoindex_dibs_jobs_1
WHERE id IN (SELECT value FROM carray(?1)) AND flow IS NULL
