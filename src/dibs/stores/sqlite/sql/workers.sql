-- Every worker that was seen or holds a claim, by name.
SELECT name, max(seen_at), max(info), sum(running) FROM (
    SELECT name, seen_at, info, 0 AS running FROM dibs_workers
    UNION ALL
    SELECT worker, NULL, NULL, count(*) FROM dibs_jobs INDEXED BY dibs_leases
    WHERE locked_until IS NOT NULL GROUP BY worker
)
GROUP BY name ORDER BY name
