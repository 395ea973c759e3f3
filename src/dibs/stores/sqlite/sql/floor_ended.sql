-- The id of the last of so many jobs that failed, or that were cancelled, newest first; nothing if there are fewer.
-- :state, :after the id that they are behind, :most how many
SELECT id FROM dibs_history INDEXED BY dibs_unsuccessful
WHERE state <> 'succeeded' AND state = :state AND id < :after ORDER BY id DESC LIMIT 1 OFFSET :most - 1
