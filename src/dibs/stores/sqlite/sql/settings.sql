-- Every queue that has settings.
SELECT name, paused, "order", ageing FROM dibs_queues
