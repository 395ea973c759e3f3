-- The oldest finished jobs that the retention does not keep, with their flows.
-- ?1 succeeded at or before, ?2 failed at or before, ?3 cancelled at or before (NULL keeps them), ?4 limit
SELECT id, flow FROM (
    SELECT * FROM (
        SELECT finished_at, id, flow FROM dibs_history INDEXED BY dibs_finished
        WHERE state = 'succeeded' AND finished_at <= ?1 ORDER BY finished_at, id LIMIT ?4
    )
    UNION ALL
    SELECT * FROM (
        SELECT finished_at, id, flow FROM dibs_history INDEXED BY dibs_finished
        WHERE state = 'failed' AND finished_at <= ?2 ORDER BY finished_at, id LIMIT ?4
    )
    UNION ALL
    SELECT * FROM (
        SELECT finished_at, id, flow FROM dibs_history INDEXED BY dibs_finished
        WHERE state = 'cancelled' AND finished_at <= ?3 ORDER BY finished_at, id LIMIT ?4
    )
)
ORDER BY finished_at, id LIMIT ?4
