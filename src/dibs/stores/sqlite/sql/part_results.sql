-- The same for the results that were kept of it.
-- ?1 id, ?2 the other id
UPDATE dibs_results SET job = ?2 WHERE job = ?1
