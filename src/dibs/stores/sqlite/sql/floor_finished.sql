-- The id of the last of so many finished jobs, newest first; nothing if there are fewer.
-- :after the id that they are behind, :most how many
SELECT id FROM dibs_history WHERE id < :after ORDER BY id DESC LIMIT 1 OFFSET :most - 1
