-- Renew leases of a worker that are valid; none is made shorter.
-- ?1 for each claim its job's id and, behind it, its epoch in ten digits; ?2 worker, ?3 now, ?4 locked_until
UPDATE dibs_jobs SET locked_until = max(locked_until, ?4), ready = 0
WHERE worker = ?2 AND locked_until > ?3 AND rowid IN (
    SELECT job.rowid FROM carray(?1) AS item CROSS JOIN dibs_jobs AS job
    WHERE job.id = substr(item.value, 1, 16) AND job.epoch = CAST(substr(item.value, 17) AS INTEGER)
)
