-- The jobs that were stored since.
-- ?1 what newest_row.sql said
SELECT id FROM dibs_jobs WHERE rowid > ?1
