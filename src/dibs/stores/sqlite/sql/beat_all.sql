-- Renew leases of a worker that are valid; none is made shorter.
-- ?1 ids of jobs whose epochs were looked at, ?2 worker, ?3 now, ?4 locked_until
UPDATE dibs_jobs INDEXED BY sqlite_autoindex_dibs_jobs_1 SET locked_until = max(locked_until, ?4), ready = 0
WHERE id IN (SELECT value FROM carray(?1)) AND worker = ?2 AND locked_until > ?3
