-- Store that a step needs another.
-- ?1 step, ?2 place, ?3 need, ?4 name of the need (plain ?, for other drivers)
INSERT INTO dibs_needs (step, place, need, name) VALUES (?, ?, ?, ?)
