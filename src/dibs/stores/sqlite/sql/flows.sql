-- Flows of one state, newest id first.
-- ?1 state, ?2 before this id, or NULL for the first, ?3 limit
SELECT id, name, state, on_failure, created_at, finished_at, meta FROM dibs_flows INDEXED BY dibs_flow_states
WHERE state = ?1 AND id < coalesce(?2, x'ffffffffffffffffffffffffffffffffff')
ORDER BY id DESC LIMIT ?3
