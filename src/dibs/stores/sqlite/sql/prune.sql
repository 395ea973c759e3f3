-- Drop the oldest finished jobs that the retention does not keep. Steps of flows count, but stay: see prunable.sql.
-- ?1 succeeded at or before, ?2 failed at or before, ?3 cancelled at or before (NULL keeps them), ?4 limit
DELETE FROM dibs_history WHERE rowid IN (
    SELECT old FROM (
        SELECT * FROM (
            SELECT rowid AS old, finished_at, id FROM dibs_history INDEXED BY dibs_finished
            WHERE state = 'succeeded' AND finished_at <= ?1 ORDER BY finished_at, id LIMIT ?4
        )
        UNION ALL
        SELECT * FROM (
            SELECT rowid, finished_at, id FROM dibs_history INDEXED BY dibs_finished
            WHERE state = 'failed' AND finished_at <= ?2 ORDER BY finished_at, id LIMIT ?4
        )
        UNION ALL
        SELECT * FROM (
            SELECT rowid, finished_at, id FROM dibs_history INDEXED BY dibs_finished
            WHERE state = 'cancelled' AND finished_at <= ?3 ORDER BY finished_at, id LIMIT ?4
        )
    )
    ORDER BY finished_at, id LIMIT ?4
) AND flow IS NULL
