-- Per queue and state of finished jobs: how many. Reads the index alone.
SELECT queue, state, count(*) FROM dibs_history INDEXED BY dibs_finished GROUP BY queue, state
