-- Does any task have a limit?
SELECT 1 FROM dibs_limits WHERE kind = 'task' LIMIT 1
