-- A flow ends before its steps do.
-- ?1 flow, ?2 state
UPDATE dibs_flows SET state = ?2 WHERE id = ?1
