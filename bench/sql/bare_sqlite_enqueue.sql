-- ?1 id, ?2 queue, ?3 task, ?4 run_at, ?5 args
INSERT INTO bare (id, queue, task, priority, run_at, args) VALUES (?1, ?2, ?3, 0, ?4, ?5)
