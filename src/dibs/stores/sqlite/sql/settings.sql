-- Every queue that has settings.
SELECT name, paused, "order" FROM dibs_queues
