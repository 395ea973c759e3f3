-- How claims of a worker stand, a letter for each in their order: h held, c held and a cancel is asked, l lost.
-- ?1 for each its id and, behind it, its epoch in ten digits; ?2 worker, ?3 now
SELECT group_concat(CASE WHEN job.id IS NULL THEN 'l' WHEN job.cancel_asked THEN 'c' ELSE 'h' END, '')
FROM carray(?1) AS item LEFT JOIN dibs_jobs AS job INDEXED BY sqlite_autoindex_dibs_jobs_1
    ON job.id = substr(item.value, 1, 16) AND job.epoch = CAST(substr(item.value, 17) AS INTEGER) AND job.worker = ?2
        AND job.locked_until > ?3
