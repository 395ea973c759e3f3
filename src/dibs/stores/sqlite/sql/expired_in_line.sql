-- Does a running job stand in line, in any queue?
SELECT 1 FROM dibs_jobs INDEXED BY dibs_leases WHERE locked_until IS NOT NULL AND ready = 1 LIMIT 1
