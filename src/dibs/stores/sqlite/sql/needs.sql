-- What a step needs, in order: its name, whether that is met, and by which result.
-- ?1 id
SELECT edge.step, edge.name, iif(edge.epoch IS NULL, past.id IS NOT NULL, edge.epoch >= 0),
    coalesce(past.result, (SELECT result FROM dibs_results WHERE job = edge.need AND epoch = edge.epoch))
FROM dibs_needs AS edge
LEFT JOIN dibs_history AS past
    ON past.id = edge.need AND past.state = 'succeeded' AND past.epoch = coalesce(edge.epoch, past.epoch)
WHERE edge.step = ?1
ORDER BY edge.place
