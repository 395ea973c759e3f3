-- Renew a lease that is valid; gives whether a cancel is asked, or nothing if the claim is lost.
-- ?1 id, ?2 epoch, ?3 worker, ?4 now, ?5 locked_until
UPDATE dibs_jobs SET locked_until = max(locked_until, ?5), ready = 0
WHERE id = ?1 AND epoch = ?2 AND worker = ?3 AND locked_until > ?4
RETURNING cancel_asked
