-- A flow runs again.
-- ?1 flow
UPDATE dibs_flows SET state = 'running', finished_at = NULL WHERE id = ?1
