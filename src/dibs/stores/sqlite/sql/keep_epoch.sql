-- Before a finished step goes: those who have its result as an input have that one.
-- ?1 id
UPDATE dibs_needs INDEXED BY dibs_needed
SET epoch = (SELECT epoch FROM dibs_history WHERE id = ?1 AND state = 'succeeded')
WHERE need = ?1 AND epoch IS NULL
