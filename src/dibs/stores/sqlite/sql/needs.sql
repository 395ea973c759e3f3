-- What a step needs, in order: its name, whether that is met, and by which result.
-- ?1 id
SELECT edge.step, edge.name, edge.epoch IS NOT NULL, coalesce(kept.result, past.result)
FROM dibs_needs AS edge
LEFT JOIN dibs_results AS kept ON kept.job = edge.need AND kept.epoch = edge.epoch
LEFT JOIN dibs_history AS past ON past.id = edge.need AND past.epoch = edge.epoch
WHERE edge.step = ?1
ORDER BY edge.place
