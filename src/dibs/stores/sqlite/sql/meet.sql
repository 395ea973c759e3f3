-- A need is met.
-- ?1 step, ?2 place, ?3 epoch of the success
UPDATE dibs_needs SET epoch = ?3 WHERE step = ?1 AND place = ?2
