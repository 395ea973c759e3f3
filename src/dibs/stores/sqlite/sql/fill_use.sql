-- Begin to keep how many jobs are held under a limit.
-- ?1 kind, ?2 name
INSERT INTO dibs_use (kind, name, key, held)
SELECT ?1, ?2, CASE ?1 WHEN 'key' THEN limit_key ELSE '' END, count(*)
FROM dibs_jobs INDEXED BY dibs_leases
WHERE locked_until IS NOT NULL
    AND CASE ?1 WHEN 'task' THEN task = ?2 WHEN 'key' THEN queue = ?2 AND limit_key <> '' ELSE queue = ?2 END
GROUP BY 3
