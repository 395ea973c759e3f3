-- The limit's settle on SQLite, second half.
-- ?1 id
DELETE FROM dibs_jobs WHERE id = ?1
