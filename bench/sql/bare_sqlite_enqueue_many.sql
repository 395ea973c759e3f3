-- ?1 for each its id and args, ?2 queue, ?3 task, ?4 run_at
INSERT INTO bare (id, queue, task, priority, run_at, args)
SELECT substr(value, 1, 16), ?2, ?3, 0, ?4, CAST(substr(value, 17) AS TEXT) FROM carray(?1)
