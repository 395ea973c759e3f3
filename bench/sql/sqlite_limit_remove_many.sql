-- The limit's settle on SQLite, second half, of many.
-- ?1 ids
DELETE FROM dibs_jobs WHERE id IN (SELECT value FROM carray(?1))
