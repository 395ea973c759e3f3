-- Forget workers that hold nothing and were last seen long ago.
-- ?1 last seen at or before
DELETE FROM dibs_workers WHERE seen_at <= ?1 AND name NOT IN (
    SELECT worker FROM dibs_jobs INDEXED BY dibs_leases WHERE locked_until IS NOT NULL
)
