-- One flow.
-- ?1 id
SELECT id, name, state, on_failure, created_at, finished_at, meta FROM dibs_flows WHERE id = ?1
