-- How a flow stands, and what it does about a failure.
-- ?1 flow
SELECT state, on_failure FROM dibs_flows WHERE id = ?1
