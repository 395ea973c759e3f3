-- A step ended: what it has not got of its needs it will not get, whatever becomes of them.
-- ?1 id
UPDATE dibs_needs
SET epoch = coalesce((SELECT epoch FROM dibs_history WHERE id = dibs_needs.need AND state = 'succeeded'), -1)
WHERE step = ?1 AND epoch IS NULL
