-- Take and finish what is there; gives the arguments.
-- ?1 queue
DELETE FROM bare WHERE rowid IN (SELECT rowid FROM bare WHERE queue = ?1 ORDER BY priority, run_at, id LIMIT 100) RETURNING args
