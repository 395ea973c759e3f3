-- Jobs that are stored from now on get higher numbers.
SELECT ifnull(max(rowid), 0) FROM dibs_jobs
