-- Store a flow, unless its id is known; gives a row if it was stored.
-- ?1 id, ?2 name, ?3 on_failure, ?4 created_at, ?5 meta (plain ?, for other drivers)
INSERT INTO dibs_flows (id, name, state, on_failure, created_at, meta)
VALUES (?, ?, 'running', ?, ?, ?)
ON CONFLICT DO NOTHING
RETURNING 1
