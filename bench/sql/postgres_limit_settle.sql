-- The limit's settle on PostgreSQL: moves succeeded jobs to the history, fenced by epoch, worker and lease. As dibs does where all
-- that end together have one epoch and one result, it sends them once.
-- $1 ids, $2 epoch, $3 result, $4 worker; gives how many were accepted
with gone as (
    delete from dibs.job
    where job.id = any ($1::uuid[]) and job.epoch = $2::integer and job.worker = $4 and job.locked_until > now()
    returning job.*
), kept as (
    insert into dibs.finished (
        id, run_at, created_at, started_at, finished_at, epoch, priority, attempts, max_attempts, cancel_asked,
        state, worker, outcome, queue, task, key, flow, step, args, meta, errors, result
    )
    select
        id, run_at, created_at, started_at, now(), epoch, priority, attempts, max_attempts, cancel_asked,
        'succeeded', worker, 'succeeded', queue, task, key, flow, step, args, meta, errors, $3::json
    from gone
    returning 1
)
select count(*) from kept
