-- A step is about to go: forget what it needed.
-- ?1 id
DELETE FROM dibs_needs WHERE step = ?1
